"""Decoder steps without a compiler: hand-made programs, eager pieces, batches of real sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Interpreter

from support.decoders import SHAPE, spec, traced_decoder
from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig, ModelConfig
from vcc.engine.graphs.program import VERSION, Call, Program, Symbol, Value
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.ops.register import load_ops, operator
from vcc.engine.partition.split import split
from vcc.engine.runtime.assemble import assemble
from vcc.engine.runtime.batch import BatchBuilder, Chunk, StepBatch, StepLimits
from vcc.engine.runtime.kv import BlockPool, BlockTable
from vcc.engine.runtime.settings import Settings
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.types import Pieces

WIDTH = 4
INTS = (
    *(("input_ids", ["T"]), ("positions", ["T"]), ("slot_mapping", ["T"])),
    *(("block_table", ["B", SHAPE.max_blocks_per_seq]), ("seq_lens", ["B"])),
    *(("query_start", [["+", "B", 1]]), ("logits_index", ["B"])),
)
SYMBOLS = [
    Symbol("T", 1, SHAPE.max_tokens, "input_ids", 0),
    Symbol("B", 1, SHAPE.max_seqs, "block_table", 0),
    Symbol("K", 1, 1 << 24, "kv_caches_0", 1),
]


def layered(layers: int) -> Program:
    """A program in the form of a decoder: a piece, then per layer KV write, attention, a piece."""
    values = [Value(name, "input", "int32", shape, name) for name, shape in INTS]
    calls = [Call("piece", "head", ["input_ids", "h0"], ["h0"])]
    values.append(Value("h0", "buffer", "float32", ["T", WIDTH], "h0"))
    for i in range(layers):
        cache, out, after = f"kv_caches_{i}", f"out{i}", f"h{i + 1}"
        values.append(Value(cache, "input", "float32", [2, "K", 8, 1, WIDTH], cache))
        values += [Value(n, "buffer", "float32", ["T", WIDTH], n) for n in (out, after)]
        calls.append(Call("op", "kv", [f"h{i}", cache, "slot_mapping"], [cache]))
        calls.append(Call("op", "attention", [f"h{i}", cache, out, [0.5]], [out]))
        calls.append(Call("piece", "layer", [f"h{i}", out, after], [after]))
    values.append(Value("logits", "buffer", "float32", ["B", 160], "logits"))
    last = Call("piece", "tail", [*calls.pop().args[:2], "logits_index", "logits"], ["logits"])
    used = {a for call in (*calls, last) for a in call.args if isinstance(a, str)}
    values = [v for v in values if v.role == "input" or v.name in used]
    return Program(VERSION, SYMBOLS, values, [*calls, last], ["logits"])


def settings(mode: GraphMode, sizes: Sequence[int], *, max_seqs: int = SHAPE.max_seqs) -> Settings:
    """Settings of a booted artifact of `SHAPE`'s limits."""
    model = ModelConfig(
        source="tiny",
        max_model_len=SHAPE.block_size * SHAPE.max_blocks_per_seq,
        max_num_seqs=max_seqs,
        max_num_batched_tokens=SHAPE.max_tokens,
        block_size=SHAPE.block_size,
    )
    compilation = CompilationConfig(
        mode=CompileMode.VCC_COMPILE,
        cuda_graph_mode=mode,
        splitting_ops=DEFAULT_SPLITTING_OPS,
        capture_sizes=tuple(sizes) if mode is not GraphMode.NONE else (),
    )
    return Settings(model, compilation, ())


def runner_of(
    program: Program,
    pieces: Mapping[str, Callable[..., Any]],
    ops: Mapping[str, Callable[..., Any]],
    mode: GraphMode,
    sizes: Sequence[int] = (1, 2, 4, 8),
    *,
    of: DecoderSpec | None = None,
    given: Mapping[str, torch.Tensor] | None = None,
) -> ModelRunner:
    """A runner over stand-ins, with every declared graph captured."""
    one = of or spec("llama", 1, head_dim=WIDTH, num_key_value_heads=1, num_attention_heads=1)
    runner = assemble(program, given or {}, pieces, ops, one, settings(mode, sizes))
    runner.capture_all()
    return runner


@dataclass(frozen=True)
class TinyDecoder:
    """A decoder whose pieces run eagerly, node by node."""

    of: DecoderSpec
    pieces: Pieces
    given: Mapping[str, torch.Tensor]

    def runner(self, mode: GraphMode, sizes: Sequence[int] = (1, 2, 4, 8)) -> ModelRunner:
        """A runner in this mode."""
        graphs = {piece.id: Interpreter(piece.graph) for piece in self.pieces.unique}
        run = {name: lambda args, g=graph: g.run(*args) for name, graph in graphs.items()}
        calls = self.pieces.program.calls
        ops = {c.target: operator(c.target) for c in calls if c.kind == "op"}
        return runner_of(self.pieces.program, run, ops, mode, sizes, of=self.of, given=self.given)


def tiny_decoder(arch: str = "llama", layers: int = 2) -> TinyDecoder:
    """A decoder with random weights."""
    load_ops()
    one = spec(arch, layers)
    graph = traced_decoder(one)
    pieces = split(graph, DEFAULT_SPLITTING_OPS, ())
    generator = torch.Generator().manual_seed(0)
    given = {}
    for value in pieces.program.of_role("weight"):
        drawn = torch.randn(value.shape, generator=generator) / value.shape[-1] ** 0.5
        given[value.name] = drawn if len(value.shape) > 1 else 1 + 0.3 * drawn
    for value in pieces.program.of_role("constant"):
        given[value.name] = graph.constants[value.target]
    return TinyDecoder(one, pieces, given)


class Sequences:
    """Sequences with their blocks, and the batches that feed them."""

    def __init__(self, limits: StepLimits) -> None:
        self._limits = limits
        self._builder = BatchBuilder(limits)
        self._pool = BlockPool(limits.num_blocks, limits.block_size)
        self._tables: dict[int, BlockTable] = {}
        self._lengths: dict[int, int] = {}

    def batch(self, work: Mapping[int, int], seed: int = 0) -> StepBatch:
        """The next step: so many new tokens for each sequence, ids from a generator."""
        chunks = []
        for sequence, count in work.items():
            start = self._lengths.get(sequence, 0)
            table = self._table(sequence, start + count)
            draw = np.random.default_rng([seed, sequence, start])
            ids = draw.integers(0, self._limits.vocab, count).astype(np.int32)
            chunks.append(Chunk(ids, start, table))
            self._lengths[sequence] = start + count
        return self._builder.build(chunks)

    def _table(self, sequence: int, length: int) -> BlockTable:
        fresh = BlockTable(self._pool, self._limits.max_blocks_per_seq)
        table = self._tables.setdefault(sequence, fresh)
        assert table.append(length), "the cache of a test holds its sequences"
        return table
