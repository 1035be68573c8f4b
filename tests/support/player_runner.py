"""A PlayerRunner over the toy step on the libcuda double."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.fake_cuda.fixtures import RawArena
from support.step_tables import BLOCK, BLOCKS_EACH, CUBIN, DIGEST, SEQS, TOKENS, VOCAB, toy_step
from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.batch import BatchBuilder, Chunk, StepBatch, StepLimits
from vcc.engine.runtime.dispatch import Dispatcher, lora_counts
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.kv import BlockPool, BlockTable
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.runtime.player.runner import PlayerParts, PlayerRunner
from vcc.engine.runtime.player.shapes import StepShapes
from vcc.engine.runtime.player.tables import EVERY, StepTable, build_graphs

BLOCKS = 32


def limits(blocks: int = BLOCKS, loras: int = 0) -> StepLimits:
    return StepLimits(TOKENS, SEQS, BLOCK, blocks, BLOCKS_EACH, BLOCK * BLOCKS_EACH, VOCAB, loras)


class Kept:
    """An arena that its fixture closes."""

    def __init__(self, arena: RawArena) -> None:
        self.device = arena.device

    def close(self) -> None:
        """Not here."""


@contextmanager
def running(
    arena: RawArena,
    mode: GraphMode,
    sizes: Sequence[int] = (1, 2, 4, 8),
    *,
    layers: int = 2,
    blocks: int = BLOCKS,
    ring: int = 16,
    loras: int = 0,
) -> Iterator[PlayerRunner]:
    """A runner with all its graphs."""
    handle = PlayerHandle(arena.handle, toy_step(layers=layers, adapted=loras > 0).data)
    handle.add_cubin(DIGEST, CUBIN)
    handle.place(blocks, blocks, 3, ring)
    table = StepTable(*EVERY, handle, Layout.read(handle.describe()))
    cases = lora_counts(loras, specialise=True)
    dispatcher = Dispatcher.build(mode, sizes, max_seqs=SEQS, lora_cases=cases)
    shapes = StepShapes(dispatcher, SEQS, table.layout.samples)
    build_graphs([table], *shapes.graphs(1), 1)
    arena = Kept(arena)
    device = Device(arena.device, 0, "double", "sm_90", 13000, 1 << 30)
    parts = (device, (table,), limits(blocks, loras), shapes, GraphStat(), arena)
    runner = PlayerRunner(PlayerParts(*parts))
    runner.wait_graphs()
    try:
        yield runner
    finally:
        runner.close()


def batch(*lengths: int, start: int = 0) -> StepBatch:
    """A step of sequences with so many tokens each, from position `start` on."""
    import numpy as np

    pool = BlockPool(BLOCKS, BLOCK)
    chunks = []
    for length in lengths:
        table = BlockTable(pool, BLOCKS_EACH)
        table.append(start + length)
        chunks.append(Chunk(np.arange(1, length + 1, dtype=np.int32), start, table))
    return BatchBuilder(limits()).build(chunks)
