"""Weights have their memory before everything else, so that their upload can begin."""

from __future__ import annotations

import threading
import time

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.step_tables import CUBIN, DIGEST, HIDDEN, VOCAB, toy_step
from support.supply_case import entry, offered, offers, supplied

from vcc.cache.errors import DeviceError, VccError
from vcc.engine.runtime.player.handle import PlayerHandle


def test_weights_are_placed_before_the_rest_and_stay_when_placing_fails(
    fake: Fake, arena: RawArena
) -> None:
    handle = PlayerHandle(arena.handle, toy_step().data)
    handle.add_cubin(DIGEST, CUBIN)
    early = handle.place_weights()
    (weight,) = early["tensors"]
    assert (weight["address"], weight["role"]) == (early["address"], "weight")
    assert early["bytes"] >= 2 * VOCAB * HIDDEN
    fake.clear()
    fake.fail("cuMemHostAlloc")
    with pytest.raises(DeviceError):
        handle.place(4, 4, 1, 1)
    arena.write(early["address"], b"still there")
    handle.place(4, 4, 1, 1)
    placed = next(one for one in handle.describe()["tensors"] if one["role"] == "weight")
    assert placed["address"] == early["address"]
    assert arena.read(early["address"], 11) == b"still there"
    handle.close()
    assert arena.stats()["live"] == 0


def test_weights_are_placed_once_and_first(fake: Fake, arena: RawArena) -> None:
    with offered(arena) as handle:
        fake.fail("cuMemCreate")
        with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
            handle.place_weights()
        fake.clear()
        handle.place_weights()
        with pytest.raises(Exception, match="placed once"):
            handle.place_weights()
        handle.place(4, 4, 1, 1)
        with pytest.raises(Exception, match="placed once"):
            handle.place_weights()


def test_products_are_offered_while_the_weights_get_their_memory(
    fake: Fake, arena: RawArena
) -> None:
    """Memory of a large model takes longer than the indexes of the GEMM store: neither waits."""
    handle = PlayerHandle(arena.handle, toy_step().data)
    try:
        handle.add_cubin(DIGEST, CUBIN)
        placing = threading.Thread(target=handle.place_weights)
        with fake.holding("cuMemCreate") as waits:
            placing.start()
            while not waits():
                time.sleep(0.001)
            assert handle.offer_gemms(offers(1, 2)) == [0, 1]
            assert placing.is_alive()
        placing.join()
        handle.place(4, 4, 1, 1)
        supplied(handle, (0, entry(1)), (1, entry(2)))
        handle.finish_gemms()
        assert [handle.gemms(rows, 1)[0]["route"] for rows in (1, 2)] == ["store", "store"]
        with pytest.raises(VccError, match="offered before the memory is placed"):
            handle.offer_gemms(offers(4))
    finally:
        handle.close()


def test_products_are_still_offered_when_placing_finds_no_code(arena: RawArena) -> None:
    handle = PlayerHandle(arena.handle, toy_step().data)
    try:
        with pytest.raises(VccError):
            handle.place(4, 4, 1, 1)
        handle.add_cubin(DIGEST, CUBIN)
        assert handle.offer_gemms(offers(1)) == [0]
        handle.place(4, 4, 1, 1)
    finally:
        handle.close()
