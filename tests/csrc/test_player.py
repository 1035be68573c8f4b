"""The native player on the libcuda double: launches, graphs, sizes, products, refusals."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from support.fake_cuda import Fake
from support.fake_cuda.cubins import cubin
from support.fake_cuda.fixtures import RawArena
from support.player_case import full, launched, names, pieces, plain, playing
from support.step_tables import (
    CUBIN,
    DIGEST,
    HIDDEN,
    KERNELS,
    SEQS,
    TOKENS,
    VOCAB,
    Step,
    toy_step,
    with_table,
)

from vcc.cache.errors import DeviceError, GraphError, IntegrityError, UsageError, VccError
from vcc.engine.graphs.table.types import Edge, Region, RegionKind, Segment, SegmentKind
from vcc.engine.runtime.player.handle import Inputs, Parts, PlayerHandle, Read, Shape
from vcc.engine.runtime.player.layout import Layout

UNIFORM, SAMPLE, ADVANCE = Parts.UNIFORM, Parts.SAMPLE, Parts.ADVANCE
MIXED = ["norm", "gemm", "kv_write", "mixed_attention", "norm", "gemm"]
DECODE = ["norm", "gemm", "kv_write", "decode_attention", "norm", "gemm"]


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (Parts.NONE, MIXED),
        (UNIFORM, DECODE),
        (UNIFORM | SAMPLE, [*DECODE, "sample"]),
        (UNIFORM | SAMPLE | ADVANCE, ["advance", *DECODE, "sample"]),
    ],
)
def test_a_step_holds_the_nodes_that_belong_to_it(
    fake: Fake, arena: RawArena, parts: Parts, wanted: list[str]
) -> None:
    with playing(arena) as handle:
        assert names(launched(fake, handle, plain(4, 4, parts))) == wanted


@pytest.mark.parametrize("parts", [Parts.NONE, UNIFORM | SAMPLE, UNIFORM | SAMPLE | ADVANCE])
@pytest.mark.parametrize("size", [1, 3, SEQS])
def test_graphs_launch_what_plain_launches_do_to_the_last_byte(
    fake: Fake, arena: RawArena, size: int, parts: Parts
) -> None:
    with playing(arena, toy_step(split_k=3, layers=2)) as handle:
        handle.build([full(size, size, parts), pieces(size, size, Parts.NONE)], 1, 1)
        assert handle.graphs(wait=True).graphs == 4  # one of the step, one of each piece
        wanted = launched(fake, handle, plain(size, size, parts))
        assert launched(fake, handle, full(size, size, parts)) == wanted
        assert fake.count("cuGraphLaunch") == 1
        assert fake.count("cuLaunchKernel") == 0
        wanted = launched(fake, handle, plain(size, size))
        assert launched(fake, handle, pieces(size, size)) == wanted
        assert fake.count("cuGraphLaunch") == 3


def test_a_graph_without_head_and_tail_serves_steps_that_have_them(
    fake: Fake, arena: RawArena
) -> None:
    with playing(arena) as handle:
        handle.build([full(4, 4, UNIFORM | SAMPLE)], 1, 0)
        for parts in (UNIFORM, UNIFORM | SAMPLE, UNIFORM | SAMPLE | ADVANCE):
            found = launched(fake, handle, full(4, 4, parts))
            head = ["advance"] if ADVANCE in parts else []
            assert names(found) == [*head, *DECODE, "sample"]  # spare tokens harm nobody
            assert fake.count("cuGraphLaunch") == 1


def test_a_piece_that_depends_on_sequences_runs_directly_where_its_graph_is_for_others(
    fake: Fake, arena: RawArena
) -> None:
    with playing(arena) as handle:
        handle.build([pieces(4, 4)], 1, 0)
        wanted = launched(fake, handle, plain(4, 2))
        assert launched(fake, handle, pieces(4, 2)) == wanted
        assert fake.count("cuGraphLaunch") == 1  # the last piece takes B


def test_words_are_addresses_of_regions_and_numbers_of_the_step(
    fake: Fake, arena: RawArena
) -> None:
    with playing(arena) as handle:
        tensors = handle.describe()["tensors"]
        homes = {one["name"]: one["address"] for one in tensors}
        norm, gemm, *_ = launched(fake, handle, plain(5, 2))
        pointers = struct.unpack_from("<3Qi", norm.words)
        assert pointers[0] == homes["input_ids"]
        assert pointers[1] == homes["w"]
        assert pointers[3] == 5
        assert norm.grid == (5, 1, 1)
        a, w, c, d, partials, rows, n, k = struct.unpack_from("<5Q3i", gemm.words)
        assert (a, w, c, partials) == (pointers[2], homes["w"], 0, 0)
        assert (rows, n, k) == (5, HIDDEN, HIDDEN)
        assert d == a + 8192
        assert gemm.grid == (1, 1, 1)


def test_split_products_are_summed_by_a_second_kernel(fake: Fake, arena: RawArena) -> None:
    with playing(arena, toy_step(split_k=4)) as handle:
        found = launched(fake, handle, plain(17, 2))
        gemm, reduce = (one for one in found[1:3])
        assert (gemm.name, gemm.grid) == ("gemm", (1, 2, 4))
        assert (reduce.name, reduce.grid) == ("gemm_reduce", (1, 17, 1))
        assert gemm.words[32:40] == reduce.words[:8] != bytes(8)


def test_sizes_outside_the_range_are_refused_with_the_range(arena: RawArena) -> None:
    with playing(arena) as handle:
        for shape, known in ((plain(TOKENS + 1, 1), TOKENS), (plain(1, SEQS + 1), SEQS)):
            with pytest.raises(UsageError, match=f"1 to {known}"):
                handle.step(shape, 1, handle.slot(), Inputs.STEP, Read.NOTHING)


def test_recent_sizes_are_kept_within_a_bound(arena: RawArena) -> None:
    with playing(arena, toy_step(layers=8)) as handle:
        for tokens in range(1, TOKENS + 1):
            for seqs in range(1, SEQS + 1):
                handle.step(plain(tokens, seqs), 1, handle.slot(), Inputs.NONE, Read.NOTHING)
        stats = handle.stats()
        assert stats["prepared"] == TOKENS * SEQS
        assert stats["kept_bytes"] <= 16 << 20


def test_a_product_that_nobody_computes_is_named(arena: RawArena) -> None:
    with playing(arena, toy_step(variants=False)) as handle:
        with pytest.raises(GraphError, match=f"5 rows by {HIDDEN} x {HIDDEN}") as refused:
            handle.step(plain(5, 2), 1, handle.slot(), Inputs.STEP, Read.NOTHING)
        assert "vcc tune" in refused.value.hint
        assert {one["route"] for one in handle.gemms(5, 2)} == {"none"}


def test_edges_of_a_table_order_its_graph(fake: Fake, arena: RawArena) -> None:
    """A split product has an edge inside, and what comes after it waits for its second kernel."""
    table = toy_step(split_k=2).table
    kept = [index for index, node in enumerate(table.nodes[1:-1], 1) if not node.when]
    nodes = tuple(table.nodes[index] for index in kept)
    edges = tuple(Edge(index, index + 1) for index in range(len(nodes) - 1))
    segments = (Segment(SegmentKind.PIECE, "4" * 16, len(nodes)),)
    step = Step(replace(table, nodes=nodes, segments=segments, edges=edges))
    with playing(arena, step) as handle:
        handle.build([full(4, 4)], 1, 0)
        wanted = ["norm", "gemm", "gemm_reduce", "kv_write", "norm", "gemm", "gemm_reduce"]
        assert names(launched(fake, handle, full(4, 4))) == wanted
        assert fake.count("cuGraphLaunch") == 1


@pytest.mark.parametrize("damage", ["missing", "short", "no elf", "no kernel", "parameters"])
def test_damaged_cubins_are_refused(arena: RawArena, damage: str) -> None:
    handle = PlayerHandle(arena.handle, toy_step().data)
    other = dict.fromkeys(KERNELS, (8, 8))
    data = {
        "missing": b"",
        "short": CUBIN[: len(CUBIN) // 2],
        "no elf": b"\0" * len(CUBIN),
        "no kernel": cubin({"other": (8,)}),
        "parameters": cubin(other),
    }[damage]
    try:
        with pytest.raises(IntegrityError) as refused:
            _add_and_place(handle, data)
        assert refused.value.why
        assert refused.value.hint
    finally:
        handle.close()


def _add_and_place(handle: PlayerHandle, data: bytes) -> None:
    if data:
        handle.add_cubin(DIGEST, data)
    handle.place(4, 4, 1, 1)


def test_a_cubin_for_another_device_is_refused_by_the_driver(arena: RawArena) -> None:
    handle = PlayerHandle(arena.handle, toy_step().data)
    try:
        with pytest.raises(DeviceError, match="NO_BINARY_FOR_GPU"):
            handle.add_cubin(DIGEST, cubin(KERNELS, arch=80))
    finally:
        handle.close()


def test_hostile_tables_are_refused_before_anything_is_allocated(
    fake: Fake, arena: RawArena
) -> None:
    data = toy_step().data
    for cut in (0, 39, 40, len(data) // 2, len(data) - 1):
        with pytest.raises(IntegrityError):
            PlayerHandle(arena.handle, data[:cut])
    for place in range(0, len(data), 97):
        bad = bytearray(data)
        bad[place] ^= 0x5A
        try:
            handle = PlayerHandle(arena.handle, bytes(bad))
        except VccError:
            continue
        handle.close()
    operand = with_table(toy_step(), regions=(*toy_step().table.regions, PEER))
    with pytest.raises(IntegrityError, match="other devices"):
        PlayerHandle(arena.handle, operand.data)
    assert fake.count("cuMemCreate") == 0


PEER = Region(RegionKind.PEER, 4096)


def test_two_players_share_a_device(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as one, playing(arena) as two:
        wanted = launched(fake, one, plain(2, 2))
        other = launched(fake, two, plain(2, 2))
        assert names(other) == names(wanted)
        assert other != wanted
        assert launched(fake, one, plain(2, 2)) == wanted


def test_a_piecewise_count_is_one_a_piece(arena: RawArena) -> None:
    """Row W5: a decoder of 12 layers has 13 pieces."""
    step = toy_step(layers=12)
    count = sum(one.kind is SegmentKind.PIECE for one in step.table.segments)
    assert count == 13
    with playing(arena, step) as handle:
        handle.build([pieces(1, 1)], 1, 0)
        assert handle.graphs().graphs == 13
    with playing(arena, step) as handle:
        handle.build([pieces(1, 1), full(1, 1, UNIFORM)], 2, 0)
        assert handle.graphs().graphs == 14


def test_layout_says_where_everything_lies(arena: RawArena) -> None:
    with playing(arena) as handle:
        layout = Layout.read(handle.describe())
        assert layout.samples
        assert layout.segments == (2, 2, 1, 1)
        assert layout.tensor("logits").shape == (SEQS, VOCAB)
        assert layout.tensor("logits").slot < 0 <= layout.tensor("token").slot
        with pytest.raises(IntegrityError):
            layout.tensor("nothing")
        for slot in range(len(layout.slots)):
            layout.array(slot, "input_ids")[:] = 7


def _shapes() -> list[Shape]:
    return [full(size, size, UNIFORM) for size in (1, 2, 4)]


def test_a_background_graph_that_fails_leaves_plain_launches(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        fake.fail("cuGraphInstantiate", nth=2)
        handle.build(_shapes(), 1, 1)
        counts = handle.graphs(wait=True)
        assert (counts.ready, counts.failed) == (2, 1)
        assert "OUT_OF_MEMORY" in counts.failure
        for size in (1, 2, 4):
            assert names(launched(fake, handle, full(size, size, UNIFORM))) == DECODE


def test_the_same_table_twice_needs_no_second_module(fake: Fake, arena: RawArena) -> None:
    with playing(arena) as handle:
        before = fake.count("cuModuleLoadData")
        handle.add_cubin(DIGEST, CUBIN)
        assert fake.count("cuModuleLoadData") == before
        assert replace(toy_step().table) == toy_step().table
