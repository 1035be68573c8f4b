"""The built-in decoder run eagerly, step by step, over paged KV caches with scattered blocks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from vcc.engine.config.modes import KvDtype
from vcc.engine.graphs.dtypes import DTYPES, NAMES
from vcc.engine.models.bindings import bindings_of, parameter_dtypes
from vcc.engine.models.decoder import Decoder
from vcc.engine.models.source import open_source
from vcc.engine.models.weights import load_weights
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops


def load_decoder(
    directory: Path,
    dtype: str,
    ops: OpChoice | None = None,
    length: int = 0,
    kv_cache: KvDtype | None = None,
) -> Decoder:
    """The decoder of a model directory with its weights, for its usual length or another."""
    load_ops()
    source = open_source(str(directory)).with_cache(kv_cache)
    wanted: torch.dtype = getattr(torch, dtype)
    exact = {name: getattr(torch, one) for name, one in parameter_dtypes(source.spec).items()}
    weights, _ = load_weights(bindings_of(source.spec), source.tensors, wanted, exact)
    with torch.device("meta"):
        spec = source.spec.for_length(length or source.spec.usual_length)
        decoder = Decoder(spec, wanted, ops)
    return decoder.assign(weights)


@dataclass(slots=True)
class EagerStepper:
    """Sequences over one decoder's KV caches.

    Args:
        decoder: the model.
        block_size: tokens a KV block.
        blocks: blocks a cache; handed out in random order.
        table: blocks a sequence may have.
        pad: adds padding rows to T and padding sequences to B.
    """

    decoder: Decoder
    block_size: int = 8
    blocks: int = 128
    table: int = 40
    pad: int = 0
    kv: list[Tensor] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    tables: dict[int, list[int]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec, dtype = self.decoder.spec, self.decoder.dtype
        shape = spec.kv_shape(self.blocks, self.block_size)
        # NaN, so that a read of anything that was never written shows.
        empty = torch.full(shape, float("nan"), dtype=dtype)
        stored = DTYPES[spec.kv_dtype(NAMES[dtype])]
        self.kv = [empty.to(stored, copy=True) for _ in range(spec.layers)]
        self.free = list(range(self.blocks))
        random.Random(0).shuffle(self.free)

    @torch.no_grad()
    def step(self, work: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
        """One step: each sequence's next tokens -> logits [tokens, vocab] of each of them."""
        ids, positions, slots, starts = [], [], [], [0]
        for sequence, tokens in work.items():
            places = self._grow(sequence, len(tokens))
            ids += tokens
            positions += places
            slots += [self._slot(sequence, place) for place in places]
            starts.append(len(ids))
        rows = len(ids)
        ids, positions, slots = (
            values + [filler] * self.pad
            for values, filler in ((ids, 0), (positions, 0), (slots, -1))
        )
        logits = self.decoder(
            *map(_int32, (ids, positions, slots)),
            _int32([*(self._row(s) for s in work), *([[0] * self.table] * self.pad)]),
            _int32([*(self.lengths[s] for s in work), *([0] * self.pad)]),
            _int32(starts + [starts[-1]] * self.pad),
            _int32(list(range(rows))),
            self.kv,
        )
        return dict(zip(work, logits.split([len(t) for t in work.values()]), strict=True))

    def _grow(self, sequence: int, count: int) -> list[int]:
        """Positions of the next `count` tokens, with blocks for them."""
        start = self.lengths.get(sequence, 0)
        self.lengths[sequence] = start + count
        blocks = self.tables.setdefault(sequence, [])
        while len(blocks) * self.block_size < start + count:
            blocks.append(self.free.pop())
        return list(range(start, start + count))

    def _slot(self, sequence: int, position: int) -> int:
        block, offset = divmod(position, self.block_size)
        return self.tables[sequence][block] * self.block_size + offset

    def _row(self, sequence: int) -> list[int]:
        blocks = self.tables[sequence]
        return blocks + [0] * (self.table - len(blocks))


def run_in_steps(
    stepper: EagerStepper,
    prompts: Mapping[int, Sequence[int]],
    schedule: Sequence[Mapping[int, int]],
) -> dict[int, Tensor]:
    """Feed prompts by a schedule of {sequence: tokens} steps; logits of every position.

    What the schedule leaves over is fed in one last step.
    """
    done = dict.fromkeys(prompts, 0)
    parts: dict[int, list[Tensor]] = {sequence: [] for sequence in prompts}
    rest = {
        s: len(tokens) - sum(step.get(s, 0) for step in schedule) for s, tokens in prompts.items()
    }
    for step in (*schedule, {s: count for s, count in rest.items() if count}):
        work = {s: prompts[s][done[s] : done[s] + count] for s, count in step.items()}
        for sequence, logits in stepper.step(work).items() if work else ():
            parts[sequence].append(logits)
            done[sequence] += len(logits)
    return {sequence: torch.cat(found) for sequence, found in parts.items()}


def _int32(values: Sequence[object]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)
