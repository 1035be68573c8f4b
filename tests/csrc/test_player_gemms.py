"""Matrix products of the native player: the store's entries, buckets of rows, choices."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_case import full, launched, plain, playing
from support.step_tables import HIDDEN, TOKENS, VOCAB, Step, toy_step, with_table
from support.supply_case import WORKSPACE, entry, offered, offers, player, supplied

from vcc.cache.errors import GraphError, IntegrityError
from vcc.engine.graphs.table.types import Edge, NodeKind, Segment, SegmentKind
from vcc.engine.runtime.player.handle import Inputs, PlayerHandle, Read


def products(fake: Fake, handle: PlayerHandle, tokens: int) -> list[str]:
    """Who computes the first product of a step; the second one is of another shape."""
    names = [one.name for one in launched(fake, handle, plain(tokens, 2))]
    return names[1 : names.index("kv_write")]


def test_the_smallest_entry_that_holds_the_rows_is_taken(fake: Fake, arena: RawArena) -> None:
    with player(arena, (4, entry(4)), (16, entry(16))) as handle:
        handle.place(4, 4, 1, 1)
        for tokens, rows in ((1, 4), (4, 4), (5, 16), (16, 16)):
            first, second = launched(fake, handle, plain(tokens, 2))[1:3]
            assert (first.name, second.name) == ("nvjet", "splitk")
            assert first.grid == (rows, 1, 1)
            assert first.words[0] == rows
            route = handle.gemms(tokens, 2)[0]
            assert (route["route"], route["rows"]) == ("store", rows)
        assert products(fake, handle, 17) == ["gemm"]  # the table's own kernel


def test_pointers_go_into_the_bytes_that_were_recorded(fake: Fake, arena: RawArena) -> None:
    with player(arena, (8, entry(8))) as handle:
        handle.place(4, 4, 1, 1)
        norm, first, second, *_ = launched(fake, handle, plain(8, 2))
        a = struct.unpack_from("<Q", norm.words, 16)[0]
        weight = struct.unpack_from("<Q", norm.words, 8)[0]
        assert struct.unpack_from("<Q", first.words, 16) == (a,)
        assert struct.unpack_from("<Q", first.words, 48) == (weight + 32,)
        (workspace,) = struct.unpack_from("<Q", first.words, 100)
        assert struct.unpack_from("<QQi", second.words) == (workspace + 64, a + 8192, 8)
        assert first.words[:16] == bytes([8]) * 16
        assert first.words[108:] == bytes([8]) * 20
        # The workspace is the table's scratch, grown to what the entry needs.
        scratch = next(one for one in handle.describe()["regions"] if one["kind"] == 4)
        assert scratch["address"] == workspace
        assert scratch["bytes"] >= WORKSPACE


def test_the_measured_choice_goes_first(fake: Fake, arena: RawArena) -> None:
    with player(arena, (4, entry(4)), (16, entry(16)), routes={16: 2}) as handle:
        handle.place(4, 4, 1, 1)
        assert products(fake, handle, 4) == ["nvjet", "splitk"]
        assert products(fake, handle, 9) == ["gemm"]


def test_an_entry_larger_than_the_buffers_is_never_taken(fake: Fake, arena: RawArena) -> None:
    with player(arena, (TOKENS + 1, entry(TOKENS + 1))) as handle:
        handle.place(4, 4, 1, 1)
        assert products(fake, handle, TOKENS) == ["gemm"]


def test_an_operand_beyond_its_region_is_refused(arena: RawArena) -> None:
    with player(arena, (4, entry(4, most=1 << 20))) as handle:
        handle.place(4, 4, 1, 1)
        with pytest.raises(GraphError, match="operand 3"):
            handle.step(plain(4, 2), 1, handle.slot(), Inputs.STEP, Read.NOTHING)


@pytest.mark.parametrize("edge", [0, 1])
def test_kernels_of_an_entry_follow_each_other_by_full_edges(
    fake: Fake, arena: RawArena, edge: int
) -> None:
    """cuBLASLt's programmatic edges make the launch of a graph dear, and no step sooner."""
    with player(arena, (4, entry(4, edge=edge))) as handle:
        handle.place(4, 4, 1, 1)
        handle.build([full(4, 2)], 1, 0)
        wanted = launched(fake, handle, plain(4, 2))
        assert launched(fake, handle, full(4, 2)) == wanted
        stats = handle.stats()
        assert (stats["programmatic_edges"], stats["full_edges"]) == (0, 0)


def programmatic() -> Step:
    """A step whose table orders it by edges, the first a programmatic one."""
    table = toy_step().table
    kept = [index for index, node in enumerate(table.nodes[1:-1], 1) if not node.when]
    nodes = tuple(table.nodes[index] for index in kept)
    edges = (Edge(0, 1, 1, 1), *(Edge(index, index + 1) for index in range(1, len(nodes) - 1)))
    segments = (Segment(SegmentKind.PIECE, "4" * 16, len(nodes)),)
    return Step(replace(table, nodes=nodes, segments=segments, edges=edges))


@pytest.mark.parametrize(("drops", "full_edges"), [("0", 0), ("1", 1), ("2", 0)])
def test_a_full_edge_for_a_programmatic_one_is_taken_and_counted(
    fake: Fake, arena: RawArena, monkeypatch: pytest.MonkeyPatch, drops: str, full_edges: int
) -> None:
    """It only orders more. Drivers that drop the data of edges added together keep it here."""
    monkeypatch.setenv("VCC_FAKE_DROP_EDGE_DATA", drops)
    with playing(arena, programmatic()) as handle:
        handle.build([full(4, 4)], 1, 0)
        stats = handle.stats()
        assert (stats["programmatic_edges"], stats["full_edges"]) == (1, full_edges)
        assert ("waits for the end" in stats.get("full_edges_why", "")) == bool(full_edges)
        assert launched(fake, handle, full(4, 4)) == launched(fake, handle, plain(4, 4))


def test_an_edge_that_is_neither_the_wanted_nor_a_full_one_is_refused(
    arena: RawArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCC_FAKE_DROP_EDGE_DATA", "3")
    with playing(arena, programmatic()) as handle:
        refused = r"gemm.*type 1 from port 0 to port 0, not type 1 from port 1"
        with pytest.raises(GraphError, match=refused) as told:
            handle.build([full(4, 4)], 1, 0)
        assert "--mode none" in told.value.hint


def test_a_driver_that_drops_an_attribute_is_found_out(
    fake: Fake, arena: RawArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = toy_step()
    cluster = (4, struct.pack("<III", 1, 1, 1).ljust(64, b"\0"))
    first, *others = step.table.kernels
    kernels = (replace(first, attributes=(cluster,)), *others)
    with playing(arena, with_table(step, kernels=kernels)) as handle:
        handle.build([full(4, 2)], 1, 0)
        wanted = launched(fake, handle, plain(4, 2))  # by cuLaunchKernelEx
        assert launched(fake, handle, full(4, 2)) == wanted
    monkeypatch.setenv("VCC_FAKE_DROP_ATTRIBUTES", "1")
    refused = pytest.raises(GraphError, match=r"norm.*attribute 4 differs")
    with playing(arena, with_table(step, kernels=kernels)) as handle, refused:
        handle.build([full(4, 2)], 1, 0)


def test_a_step_is_no_entry_and_an_entry_is_no_step(arena: RawArena) -> None:
    with offered(arena, *offers(4)) as handle:
        assert supplied(handle, (0, toy_step().data))[0] == 1
        assert "other memory than its operands" in supplied(handle, (0, toy_step().data))[1]
    with pytest.raises(IntegrityError, match="matrix product"):
        PlayerHandle(arena.handle, entry(4))


def test_without_entry_and_kernel_nobody_computes_it(arena: RawArena) -> None:
    with player(arena, (4, entry(4)), variants=False) as handle:
        handle.place(4, 4, 1, 1)
        assert [one["route"] for one in handle.gemms(4, 2)] == ["store", "none"]
        with pytest.raises(GraphError, match=f"by {VOCAB} x {HIDDEN}"):
            handle.build([full(4, 2)], 1, 0)


def moved(offset: object) -> Step:
    """A step whose first product writes so many bytes behind where it did."""
    step = toy_step()
    nodes = list(step.table.nodes)
    (at,) = (i for i, one in enumerate(nodes) if one.kind is NodeKind.GEMM and not one.target)
    *others, d = nodes[at].params
    nodes[at] = replace(nodes[at], params=(*others, replace(d, value=offset)))
    return with_table(step, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("offset", "stored"),
    [(8192, True), (8192 + 128, False), (["*", 256, "B"], True), (["*", 64, "T"], False)],
)
def test_an_operand_that_may_start_elsewhere_is_the_tables_own(
    fake: Fake, arena: RawArena, offset: object, stored: bool
) -> None:
    """Entries ask for multiples of 256 at every size, or somebody else computes the product."""
    with player(arena, (4, entry(4)), step=moved(offset)) as handle:
        handle.place(4, 4, 1, 1)
        assert products(fake, handle, 4) == (["nvjet", "splitk"] if stored else ["gemm"])
        assert handle.gemms(4, 2)[0]["route"] == ("store" if stored else "triton")
