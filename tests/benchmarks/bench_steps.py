"""Step time of an artifact beside its peers, in one process: decode, prefill, and one piece call.

The peers run the same `Decoder` with the same weights, its layers in plain torch and attention in
the same kernel: under torch.compile (one form for all sizes, as the artifact has), and eagerly.
Calls are taken in turn, so that a slow moment hits all of them; a round is the mean of many calls,
and medians of rounds are compared. Writes docs/benchmarks/steps.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import verdicts, write
from safetensors.torch import save_file

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.config.modes import GraphMode
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.bindings import bindings_of, expected_tensors
from vcc.engine.models.decoder import Decoder
from vcc.engine.models.source import open_source
from vcc.engine.models.weights import load_weights
from vcc.engine.ops.register import load_ops
from vcc.engine.request import settle
from vcc.engine.runtime.batch import BatchBuilder, Chunk, StepBatch
from vcc.engine.runtime.kv import BlockPool, BlockTable
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.session import Session, open_session

TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16}
LAYERS, CONTEXT, BLOCK = 4, 128, 16
MAX_SEQS, MAX_TOKENS = 8, 512
STEPS: Mapping[str, tuple[int, int, int]] = {
    "decode 1": (1, CONTEXT, 1),
    "decode 8": (8, CONTEXT, 1),
    "prefill 128": (1, 0, 128),
    "prefill 512": (1, 0, 512),
}
"""Sequences, tokens in the cache of each, new tokens of each."""

FILL = 32
"""Tokens of each sequence in a step that fills the caches."""

OURS, COMPILED, EAGER = "vcc", "torch.compile", "eager"
NARROW = 64
PEERS = {NARROW: (EAGER,), 512: (EAGER, COMPILED)}
"""By hidden size. Ours may take as long as any at 512, two thirds of eager's time at 64."""


PIECE, PIECE_US = "fp32 piece 2", 20.0
"""The piece between two layers, one token: four small matrix products in fp32 cost next to nothing
beside the call. In bf16 each goes through oneDNN, which alone takes some 12 us."""


def config_of(hidden: int) -> dict[str, object]:
    """A Llama with heads of 64 (of 16 when it is narrow)."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 4096,
        "hidden_size": hidden,
        "intermediate_size": hidden * 11 // 4,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8 if hidden >= 512 else 4,
        "num_key_value_heads": 4 if hidden >= 512 else 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def write_model(place: Path, hidden: int) -> Path:
    """A checkpoint with random weights."""
    return write_weights(place, config_of(hidden))


def write_weights(place: Path, config: dict[str, object]) -> Path:
    """A checkpoint of this config with random weights."""
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.ones(shape)
        if "norm" in name
        else torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in expected_tensors(spec_of(config)).items()
    }
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    return place


def our_runner(model: Path, dtype: str, store: Path) -> ModelRunner:
    """The artifact's runner. It is built in another process: a build pins Inductor's settings."""
    limits = {"max_num_seqs": MAX_SEQS, "max_num_batched_tokens": MAX_TOKENS}
    words = [w for n, v in limits.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    subprocess.run(
        [sys.executable, "-m", "vcc.cli.main", "compile", str(model), "--dtype", dtype, *words],
        env=os.environ | {"VCC_CACHE_DIR": str(store)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    request = build_request(ModelOptions(str(model), dtype=dtype, **limits))
    session = Session(settle(request), Store.open(store), require_warm=True)
    return open_session(session, lengths=[1024] * MAX_SEQS).booted.runner


Step = Callable[..., torch.Tensor]


def peers_of(model: Path, dtype: str, names: Sequence[str]) -> dict[str, Step]:
    """The decoder as each peer runs it; all share one set of weights."""
    source = open_source(str(model))
    weights, _ = load_weights(bindings_of(source.spec), source.tensors, TORCH[dtype])
    with torch.device("meta"):
        decoder = Decoder(source.spec, TORCH[dtype])
    decoder.assign(weights)
    torch.compiler.reset()  # another model's code would count against the limit of recompiles
    known = {EAGER: decoder, COMPILED: torch.compile(decoder, dynamic=True, fullgraph=True)}
    return {name: known[name] for name in names}


def arguments(batch: StepBatch) -> list[torch.Tensor]:
    """The tensors of a step, over the batch's arrays."""
    arrays = (
        batch.input_ids,
        batch.positions,
        batch.slot_mapping,
        batch.block_table,
        batch.seq_lens,
        batch.query_start,
        batch.logits_index,
    )
    return [torch.from_numpy(array) for array in arrays]


@dataclass(frozen=True)
class Sequences:
    """Sequences on blocks of their own; `batch` is a step that may be repeated."""

    runner: ModelRunner
    tables: tuple[BlockTable, ...]

    @classmethod
    def of(cls, runner: ModelRunner, count: int, length: int) -> Sequences:
        """`count` sequences with room for `length` tokens."""
        pool = BlockPool(runner.limits.num_blocks, BLOCK)
        tables = tuple(BlockTable(pool, runner.limits.max_blocks_per_seq) for _ in range(count))
        for table in tables:
            table.append(length)
        return cls(runner, tables)

    def batch(self, start: int, tokens: int) -> StepBatch:
        """The next `tokens` of every sequence, from position `start`."""
        draw = np.random.default_rng(start)
        ids = [draw.integers(3, 4096, tokens).astype(np.int32) for _ in self.tables]
        chunks = [Chunk(i, start, table) for i, table in zip(ids, self.tables, strict=True)]
        return BatchBuilder(self.runner.limits).build(chunks)


def in_turn(
    calls: Mapping[str, Callable[[], object]], rounds: int, seconds: float
) -> dict[str, float]:
    """Median microseconds of each call over rounds of about `seconds` each."""
    counts = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(seconds / (time.perf_counter() - start)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            found[name].append((time.perf_counter() - start) / counts[name])
    return {name: round(statistics.median(times) * 1e6, 1) for name, times in found.items()}


def check_equal(outputs: Mapping[str, torch.Tensor], dtype: str) -> None:
    """End the benchmark when the contestants do not compute the same."""
    ours = outputs[OURS].float()
    for name, other in outputs.items():
        error = float((ours - other.float()).abs().max() / other.float().abs().max())
        if error > (1e-3 if dtype == "fp32" else 0.1):
            sys.exit(f"{name} computes something else: error {error:.3g}")


def measure_steps(
    runner: ModelRunner, peers: Mapping[str, Step], options: argparse.Namespace, dtype: str
) -> list[dict[str, object]]:
    """One row a kind of step. The peers share KV caches, which the eager one fills."""
    limits, spec = runner.limits, peers[EAGER].spec
    shape = spec.kv_shape(limits.num_blocks, BLOCK)
    caches = [torch.zeros(shape, dtype=TORCH[dtype]) for _ in range(LAYERS)]
    rows = []
    for step, (count, context, new) in STEPS.items():
        sequences = Sequences.of(runner, count, context + new)
        for start in range(0, context, FILL):
            filling = sequences.batch(start, FILL)
            runner.step(filling)
            peers[EAGER](*arguments(filling), caches)
        batch = sequences.batch(context, new)
        given = arguments(batch)
        calls = {name: partial(peer, *given, caches) for name, peer in peers.items()}
        calls = {OURS: partial(runner.step, batch), **calls}
        check_equal({name: call().clone() for name, call in calls.items()}, dtype)
        rows.append({"step": step, "us": in_turn(calls, options.rounds, options.seconds)})
    return rows


def piece_calls(runner: ModelRunner, rounds: int) -> dict[str, float]:
    """Microseconds of each piece of a decode step of one token, by its place in the step."""
    graphs = runner._wrappers(GraphMode.FULL)[0].graphs
    smallest = min(graphs, key=lambda descriptor: descriptor.tokens)
    kinds = [call.kind for call in runner._parts.program.calls]
    pairs = zip(kinds, graphs[smallest].calls, strict=True)
    pieces = [call for kind, call in pairs if kind == "piece"]
    return in_turn({f"piece {i}": call for i, call in enumerate(pieces)}, rounds, 0.01)


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: its default")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    if options.threads:
        torch.set_num_threads(options.threads)
    load_ops()
    rows: list[dict[str, object]] = []
    pieces: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as name:
        for hidden, peers in PEERS.items():
            model = write_model(Path(name) / f"llama-{hidden}", hidden)
            for dtype in TORCH:
                runner = our_runner(model, dtype, Path(name) / "store")
                if hidden == NARROW:
                    times = piece_calls(runner, options.rounds)
                    pieces |= {f"{dtype} {place}": us for place, us in times.items()}
                found = measure_steps(runner, peers_of(model, dtype, peers), options, dtype)
                rows += [{"hidden": hidden, "dtype": dtype, **row} for row in found]
                print("\n".join(json.dumps(row) for row in rows[-len(found) :]), flush=True)
    ratios, limits = compared(rows)
    label = f"{PIECE}: us / {PIECE_US:.0f}"
    ratios[label], limits[label] = round(pieces[PIECE] / PIECE_US, 3), 1.0
    missed = verdicts(ratios, limits)
    content = {
        "what": f"microseconds a step; {LAYERS} layers, {CONTEXT} tokens before each decode",
        "rounds": options.rounds,
        "threads": torch.get_num_threads(),
        "rows": rows,
        "piece_us": pieces,
        "ratios": ratios,
        "limits": {name: round(limit, 3) for name, limit in limits.items()},
    }
    print(f"written: {write('steps', content)}")
    return missed


def compared(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Our time as a share of each peer's, and the largest that it may be."""
    ratios, limits = {}, {}
    for row in rows:
        for peer in PEERS[row["hidden"]]:
            label = f"{row['hidden']} {row['dtype']} {row['step']}: {OURS} / {peer}"
            ratios[label] = round(row["us"][OURS] / row["us"][peer], 3)
            limit = 1 / 1.5 if row["hidden"] == NARROW else 1.0
            limits[label] = limit
    return ratios, limits


if __name__ == "__main__":
    sys.exit(main())
