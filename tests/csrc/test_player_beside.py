"""Players of several tables over one memory: who runs, what is shared, what a failure leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_case import BLOCKS, decode_call, full, launched, pieces, plain
from support.step_tables import CUBIN, DIGEST, TOKENS, toy_step

from vcc.cache.errors import DeviceError, UsageError
from vcc.engine.runtime.player.handle import Parts, PlayerHandle, Shape

DECODING = Parts.UNIFORM | Parts.SAMPLE | Parts.ADVANCE
RANGES = ((3, TOKENS), (1, 2), (4, 4))
MANY = 1 << 14


@contextmanager
def opened(arena: RawArena) -> Iterator[tuple[PlayerHandle, ...]]:
    """Players of three ranges, of which the first is placed."""
    tables = [toy_step(layers=2, tokens=sizes).data for sizes in RANGES]
    first = PlayerHandle(arena.handle, tables[0])
    players = (first, *(first.beside(table) for table in tables[1:]))
    try:
        first.add_cubin(DIGEST, CUBIN)
        first.place(BLOCKS, BLOCKS, 2, 16)
        yield players
    finally:
        for player in players:
            player.close()


def places(player: PlayerHandle) -> list[object]:
    return [(one["kind"], one["address"]) for one in player.describe()["regions"]]


def test_while_one_table_runs_no_other_over_the_same_memory_does(arena: RawArena) -> None:
    with opened(arena) as (first, other, _):
        other.place(BLOCKS, BLOCKS, 2, MANY)
        control = np.zeros(2, np.int64)
        call = decode_call(other, 1, MANY, control=control)
        thread = threading.Thread(target=other.decode, args=(plain(1, 1, DECODING), call))
        thread.start()
        try:
            while control[1] == 0:
                pass
            for busy in (first.wait, first.slot, lambda: first.map_blocks(BLOCKS)):
                with pytest.raises(UsageError, match="running already"):
                    busy()
            assert control[1] < MANY, "the steps had ended before they were in the way"
        finally:
            control[0] = 1
            thread.join()
        first.wait()


def test_a_table_that_found_no_memory_is_placed_at_a_later_try(fake: Fake, arena: RawArena) -> None:
    calls = calls_of_place(fake, arena)
    assert calls > 5
    with opened(arena) as (first, other, _):
        for nth in range(1, calls + 1):
            fake.fail("*", nth)
            with pytest.raises(DeviceError):
                other.place(BLOCKS, BLOCKS, 2, 16)
            fake.clear()
        other.place(BLOCKS, BLOCKS, 2, 16)
        assert places(other) == places(first)
        assert len(launched(fake, other, plain(2, 2), 2)) > 5


def calls_of_place(fake: Fake, arena: RawArena) -> int:
    """Driver calls of placing a second table."""
    with opened(arena) as (_, other, _):
        fake.clear()
        other.place(BLOCKS, BLOCKS, 2, 16)
        return fake.count()


def test_tables_take_turns_step_by_step_in_every_mode(fake: Fake, arena: RawArena) -> None:
    """Threads build the graphs of all of them meanwhile, and each can be closed first."""
    wanted: dict[int, tuple[Shape, ...]] = {
        0: (full(8, 8), pieces(16, 8), plain(5, 2)),
        1: (full(2, 2, DECODING), pieces(1, 1), plain(2, 1)),
        2: (full(4, 4), pieces(4, 4), plain(4, 2)),
    }
    with opened(arena) as players:
        for other in players[1:]:
            other.place(BLOCKS, BLOCKS, 2, 16)
        alone = {
            (index, shape): launched(fake, players[index], plain_of(shape), shape.seqs)
            for index, shapes in wanted.items()
            for shape in shapes
        }
        for index, player in enumerate(players):
            player.build([one for one in wanted[index] if one.mode != plain(1, 1).mode], 0, 2)
        for _ in range(4):
            for (index, shape), launches in alone.items():
                assert launched(fake, players[index], shape, shape.seqs) == launches
        assert [player.graphs(wait=True).failed for player in players] == [0, 0, 0]
        players[0].close()
        assert launched(fake, players[2], wanted[2][0], 4) == alone[2, wanted[2][0]]


def plain_of(shape: Shape) -> Shape:
    return plain(shape.tokens, shape.seqs, shape.parts)
