"""Recorded steps in parts on the player: graphs between breaks (driver's double); W5 and W6."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.recorded_steps import CONFIG, LIMITS, batch, recording, table

from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.recorder.plan import Descriptor
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Segment, SegmentKind
from vcc.engine.runtime.dispatch import dispatcher_of
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.player.handle import Mode, PlayerHandle
from vcc.engine.runtime.player.load_recorded import how_mixed
from vcc.engine.runtime.player.recorded import Recorded, RecordedRunner, largest_first, place

PARTED = replace(
    CONFIG, cuda_graph_mode=GraphMode.FULL_AND_PIECEWISE, splitting_ops=("vcc::paged_attention",)
)
PIECES = (Descriptor(8, 4, False), Descriptor(4, 4, False), Descriptor(4, 4, True))
"""Two steps in parts, and a whole one for decode."""


def in_parts(data: bytes) -> bytes:
    """A fill, a break that copies, and a second copy that does no harm."""
    made = decode(data)
    segments = (
        Segment(SegmentKind.PIECE, "recorded", 1),
        Segment(SegmentKind.OP, "vcc::paged_attention", 1),
        Segment(SegmentKind.PIECE, "recorded", 1),
    )
    return encode(replace(made, nodes=(*made.nodes, made.nodes[-1]), segments=segments))


@pytest.fixture
def parted(fake: Fake, arena: RawArena) -> Iterator[RecordedRunner]:
    found = recording()
    tables = {Recorded.parse(one.blob): table(found, one) for one in PIECES}
    tables = {one: data if one.uniform else in_parts(data) for one, data in tables.items()}
    first = PlayerHandle(arena.handle, tables[largest_first(tables)[0]])
    steps = place(first, tables, LIMITS.num_blocks, LIMITS, Mode.PIECEWISE)
    dispatcher = dispatcher_of(PARTED, max_seqs=4, breakable=True)
    made = RecordedRunner(steps, dispatcher, LIMITS, GraphStat(), None)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("rows", "which", "graphs", "plain"),
    [([3, 1], 4.0, 2, 1), ([5, 1, 1], 8.0, 2, 1), ([1, 1, 1], 4.5, 1, 0)],
    ids=str,
)
def test_w6_parts_of_a_step_are_graphs_and_breaks_are_launched_between_them(
    parted: RecordedRunner, rows: list[int], which: float, graphs: int, plain: int
) -> None:
    before = launches(parted)
    for token in (3, 5):  # the replay reads what the inputs hold now
        step = replace(batch(rows), input_ids=np.full(sum(rows), token, np.int32))
        logits = parted.step(step)
        assert (logits[:, 1:] == which).all()
        assert logits[0, 0] == np.int32(token).view(np.float32)
    after = launches(parted)
    assert [now - then for now, then in zip(after, before, strict=True)] == [2 * graphs, 2 * plain]


def launches(runner: RecordedRunner) -> list[int]:
    """Graphs and nodes that were launched."""
    stats = [step.handle.stats() for step in runner._steps.values()]
    return [sum(one[name] for one in stats) for name in ("graph_launches", "plain_launches")]


def test_w5_graphs_of_parts_are_counted(parted: RecordedRunner) -> None:
    assert parted.gate.captures == 2 + 2 + 1
    parted.step(batch([3, 1]))
    parted.step(batch([1]))
    assert parted.gate.replays == 2 + 1
    found = {(one["mode"], one["tokens"], one["graphs"]) for one in parted.graph_list()}
    assert found == {("piecewise", 8, 2), ("piecewise", 4, 2), ("full", 4, 1)}
    assert all(one["built"] for one in parted.graph_list())
    modes = dict(parted.stat.summary().modes)
    assert modes == {"piecewise": 1, "full": 1}


def test_the_graph_mode_says_how_mixed_steps_are_launched() -> None:
    parts = {mode for mode in GraphMode if how_mixed(mode) is Mode.PIECEWISE}
    assert parts == {GraphMode.PIECEWISE, GraphMode.FULL_AND_PIECEWISE}
