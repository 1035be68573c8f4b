"""Recorded tables on the player: a graph a declared step, all over one memory (driver's double)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.recorded_steps import CONFIG, LIMITS, STEPS, batch, recording, table

from vcc.cache.errors import DeviceError, GraphError, IntegrityError
from vcc.engine.graphs.recorder.decoder_plan import LOGITS
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NodeTable,
    Role,
    Symbol,
)
from vcc.engine.runtime.dispatch import dispatcher_of
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.player.recorded import Recorded, RecordedRunner, largest_first, place


def changed(name: str, /, **fields: object) -> Callable[[NodeTable], NodeTable]:
    """A table with one tensor changed."""

    def change(made: NodeTable) -> NodeTable:
        tensors = tuple(replace(one, **fields) if one.name == name else one for one in made.tensors)
        assert tensors != made.tensors
        return replace(made, tensors=tensors)

    return change


@pytest.fixture
def runner(fake: Fake, arena: RawArena) -> Iterator[RecordedRunner]:
    found = recording()
    tables = {Recorded.parse(one.blob): table(found, one) for one in STEPS}
    first = PlayerHandle(arena.handle, tables[largest_first(tables)[0]])
    steps = place(first, tables, LIMITS.num_blocks, LIMITS)
    made = RecordedRunner(steps, dispatcher_of(CONFIG, max_seqs=4), LIMITS, GraphStat(), None)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("rows", "which"),
    [([1, 1], 2.5), ([1], 2.5), ([1, 1, 1], 4.5), ([3, 1], 8.0), ([5, 1, 1], 8.0)],
    ids=str,
)
def test_a_step_runs_the_smallest_graph_that_holds_it(
    runner: RecordedRunner, rows: list[int], which: float
) -> None:
    logits = runner.step(batch(rows))
    assert logits.shape == (len(rows), LIMITS.vocab)
    assert (logits[:, 1:] == which).all()
    assert logits[0, 0] == np.int32(3).view(np.float32), "the batch's own input was read"


def test_a_step_that_nothing_holds_is_refused_by_its_size(runner: RecordedRunner) -> None:
    with pytest.raises(GraphError, match="9 rows of 2 sequences") as caught:
        runner.step(batch([8, 1]))
    assert "8x4" in caught.value.why


def test_graphs_and_replays_are_counted(runner: RecordedRunner) -> None:
    runner.step(batch([1]))
    runner.step(batch([4]))
    assert (runner.gate.captures, runner.gate.replays) == (3, 2)
    assert len(runner.graph_list()) == 3
    assert all(one["built"] for one in runner.graph_list())


def test_all_tables_use_one_memory(fake: Fake, arena: RawArena) -> None:
    found = recording()
    tables = {Recorded.parse(one.blob): table(found, one) for one in STEPS}
    first = PlayerHandle(arena.handle, tables[largest_first(tables)[0]])
    steps = place(first, tables, LIMITS.num_blocks, LIMITS)
    places = [{n: t.address for n, t in step.layout.tensors.items()} for step in steps]
    assert places[0] == places[1] == places[2]
    for step in steps:
        step.handle.close()


def test_a_table_of_larger_memory_is_refused(fake: Fake, arena: RawArena) -> None:
    found = recording()
    small, large = (Recorded.parse(STEPS[index].blob) for index in (1, 0))
    tables = {large: table(found, STEPS[0]), small: table(found, STEPS[1], extra=4096)}
    first = PlayerHandle(arena.handle, tables[large])
    with pytest.raises(IntegrityError, match="does not fit the memory"):
        place(first, tables, LIMITS.num_blocks, LIMITS)
    first.close()


def test_tables_that_were_placed_are_closed_when_a_later_one_fails(
    fake: Fake, arena: RawArena
) -> None:
    tables = {Recorded.parse(one.blob): table(recording(), one) for one in STEPS}
    first = PlayerHandle(arena.handle, tables[largest_first(tables)[0]])
    made, destroyed = fake.count("cuGraphInstantiate"), fake.count("cuGraphExecDestroy")
    fake.fail("cuGraphInstantiate", nth=3)
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY") as caught:
        place(first, tables, LIMITS.num_blocks, LIMITS)
    assert fake.count("cuGraphInstantiate") - made == 3
    assert fake.count("cuGraphExecDestroy") - destroyed == 1, "the second; the first is ours"
    first.close()
    assert fake.count("cuGraphExecDestroy") - destroyed == 2
    assert caught.tb is not None  # it kept every frame alive, so nothing was merely collected


HOSTILE: dict[str, tuple[Callable[[NodeTable], NodeTable], str]] = {
    "sizes of another step": (
        lambda t: replace(t, symbols=(Symbol("T", 2, 2), *t.symbols[1:])),
        "its name says",
    ),
    "a size too many": (
        lambda t: replace(t, symbols=(*t.symbols, Symbol("Z", 1, 1))),
        "its name says",
    ),
    "a range of sizes": (
        lambda t: replace(t, symbols=(Symbol("T", 1, 4), *t.symbols[1:])),
        "T 1 to 4",
    ),
    "an input that is too short": (
        changed("input_ids", shape=(1,)),
        "input int32 [1]",
    ),
    "an input of another dtype": (changed("positions", dtype="int8"), "positions is input int8"),
    "a block table of other rows": (changed("block_table", shape=(2, 4)), "block_table"),
    "an input that is an output": (changed("seq_lens", role=Role.OUTPUT), "seq_lens is output"),
    "an input under another name": (changed("query_start", name="start"), "query_start"),
    "narrow logits": (changed(LOGITS, shape=(4, 2)), "logits is output float32 [4, 2]"),
    "one row of logits": (changed(LOGITS, shape=(1, 8)), "logits"),
    "logits of whole numbers": (changed(LOGITS, dtype="int32"), "logits is output int32"),
    "logits of another float": (changed(LOGITS, dtype="bfloat16"), "different dtypes"),
    "no logits": (changed(LOGITS, name="other"), "logits"),
}
"""Tables that the player takes, stored as the step of four rows of four sequences."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_that_is_not_the_step_of_its_name_is_refused(
    fake: Fake, arena: RawArena, name: str
) -> None:
    """Before anything is written into it or read from behind it."""
    change, said = HOSTILE[name]
    found = recording()
    tables = {Recorded.parse(one.blob): table(found, one) for one in STEPS}
    four = Recorded.parse(STEPS[1].blob)
    tables[four] = encode(change(decode(tables[four])))
    first = PlayerHandle(arena.handle, tables[largest_first(tables)[0]])
    with pytest.raises(IntegrityError) as caught:
        place(first, tables, LIMITS.num_blocks, LIMITS)
    assert said in str(caught.value)
    first.close()


@pytest.mark.parametrize(
    "name",
    [
        *("table/recorded.1.2", "table/recorded.a.1.0", "table/recorded."),
        *("table/recorded.01.1.0", "table/recorded.1.1.2", "table/recorded.1.1.00"),
        *("table/recorded.0.0.0", "table/recorded.1.2.0", "table/recorded.4.2.1"),
        *(f"table/recorded.{'9' * 5000}.1.0", "table/recorded.1.1.0\n", "table/recorded.٣.1.0"),
    ],
)
def test_blob_names_that_are_no_steps_are_refused(name: str) -> None:
    with pytest.raises(IntegrityError, match="names no recorded step"):
        Recorded.parse(name)
