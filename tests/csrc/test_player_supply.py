"""Entries of the GEMM store that come beside everything else: order, waiting, what is refused."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.cubins import cubin
from support.fake_cuda.fixtures import RawArena
from support.player_case import full, launched, names, pieces, plain
from support.step_tables import CUBIN, DIGEST, HIDDEN, TOKENS, VOCAB, toy_step
from support.supply_case import (
    SHAPE,
    STORED,
    WORKSPACE,
    entry,
    offered,
    offers,
    player,
    supplied,
)

from vcc.cache.errors import DeviceError, GraphError, IntegrityError, UsageError
from vcc.engine.graphs.table.decode import decode
from vcc.engine.runtime.player.gemm_calls import Offer, Supply
from vcc.engine.runtime.player.handle import Inputs, PlayerHandle, Read, Shape
from vcc.engine.tune.families import Products
from vcc.engine.tune.wanted import products_of_tables

ROWS = (2, 4, 8, 16, 32)
ROUTES = {2: 1, 4: 2, 8: 0, 16: 2}


def routes_of(handle: PlayerHandle, tokens: int) -> tuple[str, int, int]:
    found = handle.gemms(tokens, 1)[0]
    return found["route"], found["rows"], found["variant"]


def test_left_out_entries_change_no_choice_at_any_number_of_rows(
    fake: Fake, arena: RawArena
) -> None:
    """Handing over everything, or only what can be chosen: the same launches for each size."""
    every = [(rows, entry(rows)) for rows in ROWS]
    with player(arena, *every, routes=ROUTES) as whole:
        whole.place(4, 4, 1, 1)
        wanted = [routes_of(whole, tokens) for tokens in range(1, TOKENS + 1)]
        kernels = [names(launched(fake, whole, plain(t, 1))) for t in range(1, TOKENS + 1)]
    handle = PlayerHandle(arena.handle, toy_step().data)
    handle.add_cubin(DIGEST, CUBIN)
    needed = handle.offer_gemms(offers(*ROWS, routes=ROUTES))
    assert needed == [0, 2, 4]  # those of 2, 8 and 32 rows
    handle.place(4, 4, 1, 1)
    before = [routes_of(handle, tokens) for tokens in range(1, TOKENS + 1)]
    supplied(handle, *((one, entry(ROWS[one])) for one in needed))
    handle.finish_gemms()
    assert before == wanted, "the choice does not depend on what has come"
    assert [routes_of(handle, tokens) for tokens in range(1, TOKENS + 1)] == wanted
    found = [names(launched(fake, handle, plain(t, 1))) for t in range(1, TOKENS + 1)]
    assert found == kernels
    handle.close()


def test_a_choice_that_no_kernel_can_follow_needs_its_entry(arena: RawArena) -> None:
    handle = PlayerHandle(arena.handle, toy_step(variants=False).data)
    assert handle.offer_gemms(offers(4, routes={4: 2})) == [0]
    handle.close()


def test_the_first_graphs_entries_come_first_and_each_once(arena: RawArena) -> None:
    with offered(arena, *offers(*ROWS, routes=ROUTES)) as handle:
        graphs = [full(32, 8), full(16, 8), pieces(1, 1), full(8, 8), full(2, 2), full(64, 8)]
        assert handle.gemm_order(graphs[:1], 5) == [4]
        assert handle.gemm_order(graphs, 5) == [4, 0, 2]
        assert handle.gemm_order([full(16, 8), full(64, 8)], 5) == []  # by the table's kernels


def beside(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def step(handle: PlayerHandle, shape: Shape) -> None:
    handle.step(shape, 1, handle.slot(), Inputs.STEP, Read.NOTHING)


def test_a_step_waits_for_the_entry_it_needs(fake: Fake, arena: RawArena) -> None:
    with offered(arena, *offers(4, 8)) as handle:
        handle.place(4, 4, 1, 1)
        step(handle, plain(9, 2))  # by the table's own kernel: nothing to wait for
        fake.clear()
        waiting = beside(lambda: step(handle, plain(4, 2)))
        supplied(handle, (1, entry(8)))
        time.sleep(0.05)
        assert waiting.is_alive()
        assert supplied(handle, (0, entry(4))) == (0, "")
        waiting.join(10)
        assert names(fake.launches())[1:3] == ["nvjet", "splitk"]
        handle.finish_gemms()


def test_graphs_wait_for_their_entries_and_are_those_of_plain_launches(
    fake: Fake, arena: RawArena
) -> None:
    with offered(arena, *offers(4, 8)) as handle:
        handle.place(4, 4, 1, 1)
        handle.build([full(16, 2), full(4, 2), full(8, 2)], 1, 2)
        time.sleep(0.05)
        assert handle.graphs().ready == 1
        supplied(handle, (0, entry(4)), (1, entry(8)))
        handle.finish_gemms()
        counts = handle.graphs(wait=True)
        assert (counts.ready, counts.failed) == (3, 0)
        for tokens in (4, 8, 16):
            assert launched(fake, handle, full(tokens, 2)) == launched(
                fake, handle, plain(tokens, 2)
            )


def test_what_never_comes_is_as_if_it_had_not_been_offered(fake: Fake, arena: RawArena) -> None:
    with offered(arena, *offers(4, 8)) as handle:
        handle.place(4, 4, 1, 1)
        waiting = beside(lambda: step(handle, plain(4, 2)))
        supplied(handle, (1, entry(8)))
        handle.finish_gemms()
        waiting.join(10)
        assert not waiting.is_alive()
        assert routes_of(handle, 4)[:2] == ("store", 8)  # the next larger one
        assert supplied(handle, (0, entry(4))) == (0, "")  # too late: dropped
        assert routes_of(handle, 4)[:2] == ("store", 8)


def test_without_kernels_a_missing_entry_is_told_by_name(arena: RawArena) -> None:
    with offered(arena, *offers(4), variants=False) as handle:
        handle.place(4, 4, 1, 1)
        handle.finish_gemms()
        with pytest.raises(GraphError, match="nobody computes"):
            step(handle, plain(4, 2))


def test_closing_ends_the_waiting_of_threads_that_build(arena: RawArena) -> None:
    with offered(arena, *offers(4)) as handle:
        handle.place(4, 4, 1, 1)
        handle.build([full(16, 2), full(4, 2)], 1, 1)
    with pytest.raises(UsageError, match="no such player"):
        handle.finish_gemms()


REFUSED: dict[str, tuple[bytes, str]] = {
    "no table": (b"nonsense" * 40, "table"),
    "an empty one": (b"", "table"),
    "more alignment": (entry(4, alignment=512), "operand 0 is to start at a multiple of 512"),
    "more workspace": (entry(4), "more workspace than was offered"),
    "no such kernel": (entry(4), "takes other parameters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_entry_is_withdrawn_and_said(fake: Fake, arena: RawArena, case: str) -> None:
    table, why = REFUSED[case]
    workspace = 16 if case == "more workspace" else WORKSPACE
    with offered(arena, Offer(4, SHAPE, 0, workspace), *offers(8)) as handle:
        handle.place(4, 4, 1, 1)
        waiting = beside(lambda: step(handle, plain(3, 2)))
        if case == "no such kernel":
            other = cubin({"nvjet": (64,), "splitk": (8, 8, 4)})
            count, said = relabelled(handle, other, table)
        else:
            count, said = supplied(handle, (0, table))
        assert count == 1
        assert why in said
        supplied(handle, (1, entry(8)))
        waiting.join(10)
        assert not waiting.is_alive()


def relabelled(handle: PlayerHandle, code: bytes, table: bytes) -> tuple[int, str]:
    """Another cubin under the digest that the table names."""

    def write(view: memoryview) -> None:
        view[:] = code

    supply = Supply([len(code), len(table)])
    supply.cubin(hashlib.sha256(STORED).hexdigest(), len(code), write)
    supply.entry(0, memoryview(table))
    found = handle.supply_gemms(supply)
    # The module is there now: what comes later under this digest is refused as well.
    assert supplied(handle, (1, entry(8)))[0] == 1
    return found


def test_a_cubin_that_does_not_load_costs_its_entries_alone(fake: Fake, arena: RawArena) -> None:
    with offered(arena, *offers(4)) as handle:
        handle.place(4, 4, 1, 1)
        fake.fail("cuModuleLoadData", code=200)
        count, why = supplied(handle, (0, entry(4)))
        assert count == 1
        assert "cuModuleLoadData" in why
        step(handle, plain(4, 2))  # by the table's own kernel
        assert routes_of(handle, 4)[0] == "triton"


def test_a_lost_device_is_told_to_the_supplier(fake: Fake, arena: RawArena) -> None:
    with offered(arena, *offers(4)) as handle:
        handle.place(4, 4, 1, 1)
        fake.fault()
        with pytest.raises(DeviceError):
            step(handle, plain(9, 2))
        with pytest.raises(DeviceError):
            supplied(handle, (0, entry(4)))
        fake.reset()


def test_offers_come_before_the_memory_is_placed(arena: RawArena) -> None:
    with offered(arena) as handle:
        handle.place(4, 4, 1, 1)
        with pytest.raises(Exception, match="before the memory is placed"):
            handle.offer_gemms(offers(4))


@pytest.mark.parametrize(
    "bad", [Offer(0, SHAPE), Offer(1, (8, 8, 99, 0)), Offer(1, (8, 8, 3, 2)), Offer(1, SHAPE, 3)]
)
def test_offers_that_make_no_sense_are_refused(arena: RawArena, bad: Offer) -> None:
    with offered(arena) as handle, pytest.raises(Exception, match=r"product|route|rows"):
        handle.offer_gemms([bad])


def test_supplies_outside_their_data_or_of_no_offer_are_refused(arena: RawArena) -> None:
    with offered(arena, *offers(4)) as handle:
        supply = Supply([64])
        supply.cubins.append(bytes(32) + (32).to_bytes(8, "little") + (64).to_bytes(8, "little"))
        with pytest.raises(Exception, match="inside the data"):
            handle.supply_gemms(supply)
        with pytest.raises(Exception, match="an offer"):
            supplied(handle, (7, entry(4)))


def test_only_workspace_of_what_can_be_taken_is_allocated(arena: RawArena) -> None:
    large = 64 << 20
    with offered(arena, Offer(4, SHAPE, 2, large), Offer(8, SHAPE, 1, WORKSPACE)) as handle:
        assert WORKSPACE <= handle.bytes(1).scratch < large


def test_the_player_says_what_its_table_multiplies_as_the_reader_does(arena: RawArena) -> None:
    for step_table in (toy_step(), toy_step(split_k=2), toy_step(variants=False)):
        handle = PlayerHandle(arena.handle, step_table.data)
        told = handle.products()
        assert Products.told(told) == products_of_tables([decode(step_table.data)])
        assert [row[:2] for row in json.loads(told)["gemms"]] == [[HIDDEN, HIDDEN], [VOCAB, HIDDEN]]
        handle.close()


def test_many_cubins_are_loaded_in_one_call_and_a_bad_one_is_told(
    fake: Fake, arena: RawArena
) -> None:
    handle = PlayerHandle(arena.handle, toy_step().data)
    handle.add_cubins({})
    handle.add_cubins({DIGEST: CUBIN, hashlib.sha256(STORED).hexdigest(): STORED})
    assert handle.stats()["modules"] == 2
    handle.place(4, 4, 1, 1)
    with pytest.raises(IntegrityError, match="cubin is damaged"):
        handle.add_cubins({"0" * 64: b"no cubin"})
    fake.fail("cuModuleLoadData")
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        handle.add_cubins({"1" * 64: STORED})
    assert handle.stats()["modules"] == 2
    handle.close()
