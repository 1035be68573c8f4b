"""Products of fp8 values in the native player: the store's entries, and the table's own kernel."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from support.fake_cuda import Fake, Launch
from support.fake_cuda.fixtures import RawArena
from support.player_case import full, launched, plain
from support.scaled_step import (
    FEW,
    scaled_entry,
    scaled_offer,
    scaled_player,
    scaled_step,
)
from support.step_tables import HIDDEN, TOKENS, Step

from vcc.cache.errors import GraphError
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import Edge, Segment, SegmentKind, When
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.tune.families import Products
from vcc.engine.tune.wanted import products_of_tables


def bases(handle: PlayerHandle) -> tuple[int, int]:
    """Where weights and workspace lie."""
    found = {one["kind"]: one["address"] for one in handle.describe()["regions"]}
    return found[0], found[3]


def product(fake: Fake, handle: PlayerHandle, tokens: int) -> Launch:
    """What computes the first product of a step."""
    return launched(fake, handle, plain(tokens, 2))[1]


@pytest.mark.parametrize("has_c", [False, True])
@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks", "mixed"])
def test_without_an_entry_the_tables_kernel_multiplies(
    fake: Fake, arena: RawArena, scales: str, has_c: bool
) -> None:
    """It takes a, w, both scales, the bias, d and the rows, in tiles for few rows and for many."""
    with scaled_player(arena, scaled_step(scales, has_c=has_c), []) as handle:
        weights, workspace = bases(handle)
        for tokens, programs in ((1, 2), (FEW, 2), (FEW + 1, 4), (16, 4), (17, 8), (TOKENS, 16)):
            one = product(fake, handle, tokens)
            assert (one.name, one.grid) == ("scaled_linear", (programs, 1, 1))
            found = struct.unpack("<6Qi4xQQ", one.words)
            bias = weights + 512 if has_c else 0
            pointers = (workspace, weights, workspace + 4096, weights + 768, bias)
            assert found == (*pointers, workspace + 8192, tokens, 0, 0)
        route = handle.gemms(3, 2)[0]
        assert (route["route"], route["scales"], route["out"]) == ("triton", scales, 3)


@pytest.mark.parametrize("has_c", [False, True])
@pytest.mark.parametrize("scales", ["tensor", "rows"])
def test_an_entry_is_given_the_scales_of_the_step(
    fake: Fake, arena: RawArena, scales: str, has_c: bool
) -> None:
    offers = [scaled_offer(rows, scales, has_c=has_c) for rows in (8, 32)]
    entries = [scaled_entry(rows, scales, has_c=has_c) for rows in (8, 32)]
    with scaled_player(arena, scaled_step(scales, has_c=has_c), offers, *entries) as handle:
        weights, workspace = bases(handle)
        wanted = [workspace, weights, *([weights + 512] if has_c else []), workspace + 8192]
        wanted += [workspace + 4096, weights + 768]
        for tokens, rows in ((1, 8), (8, 8), (9, 32)):
            one = product(fake, handle, tokens)
            assert (one.name, one.grid) == ("nvjet", (rows, 1, 1))
            assert list(struct.unpack_from(f"<{len(wanted)}Q", one.words)) == wanted
            assert handle.gemms(tokens, 2)[0]["route"] == "store"
        assert product(fake, handle, 33).name == "scaled_linear"
        handle.build([full(8, 2)], 1, 0)
        assert launched(fake, handle, full(8, 2)) == launched(fake, handle, plain(8, 2))


@pytest.mark.parametrize("workspace", [0, 300])
@pytest.mark.parametrize("edges", [False, True])
def test_scales_of_blocks_are_spread_for_an_entry_of_more_rows(
    fake: Fake, arena: RawArena, workspace: int, edges: bool
) -> None:
    """A kernel of the table writes them behind the workspace, as many rows apart as the entry's."""
    given: dict[str, Any] = {"workspace": workspace, "depth": 512}
    offers = [scaled_offer(rows, "blocks", **given) for rows in (8, 32)]
    entries = [scaled_entry(rows, "blocks", **given) for rows in (8, 32)]
    step = scaled_step("blocks", depth=512)
    with scaled_player(arena, in_order(step) if edges else step, offers, *entries) as handle:
        weights, memory = bases(handle)
        for tokens, rows in ((1, 8), (9, 32), (31, 32)):
            spread, one = launched(fake, handle, plain(tokens, 2))[1:3]
            assert (spread.name, spread.grid) == ("spread_scales", (1, 4, 1))
            scales, place, *numbers = struct.unpack("<2Q3i4x2Q", spread.words)
            assert (scales, numbers) == (memory + 4096, [tokens, 4, rows, 0, 0])
            assert place % 256 == 0
            assert (one.name, one.grid) == ("nvjet", (rows, 1, 1))
            found = struct.unpack_from(f"<{6 if workspace else 5}Q", one.words)
            assert found[:3] == (memory, weights, memory + 8192)
            assert found[-2:] == (place, weights + 768)
            assert not workspace or place == found[3] + 512
        for tokens in (8, 32):  # as many as the entry's: they are read where they are
            one = product(fake, handle, tokens)
            assert (one.name, one.grid) == ("nvjet", (tokens, 1, 1))
            assert struct.unpack_from(f"<{6 if workspace else 5}Q", one.words)[-2:] == (
                memory + 4096,
                weights + 768,
            )
        assert product(fake, handle, 33).name == "scaled_linear"
        handle.build([full(7, 2), full(8, 2)], 1, 0)
        for tokens in (7, 8):
            wanted = launched(fake, handle, plain(tokens, 2))
            assert launched(fake, handle, full(tokens, 2)) == wanted


@pytest.mark.parametrize("edges", [False, True])
def test_scales_of_a_weight_are_spread_where_an_entry_reads_columns_more(
    fake: Fake, arena: RawArena, edges: bool
) -> None:
    """Those of one block of k, which lie four apart there; after those of a, if they are."""
    offers, entries = [scaled_offer(8, "blocks")], [scaled_entry(8, "blocks")]
    step = scaled_step("blocks")
    with scaled_player(arena, in_order(step) if edges else step, offers, *entries) as handle:
        weights, memory = bases(handle)
        for tokens in (8, 3):
            *others, spread, one = launched(fake, handle, plain(tokens, 2))[1 : 3 + (tokens < 8)]
            assert [other.name for other in others] == ["spread_scales"] * (tokens < 8)
            assert (spread.name, spread.grid) == ("spread_scales", (1, 1, 1))
            scales, place, *numbers = struct.unpack("<2Q3i4x2Q", spread.words)
            assert (scales, numbers) == (weights + 768, [1, 1, 4, 0, 0])
            of_a = memory + 4096 if tokens == 8 else struct.unpack_from("<2Q", others[0].words)[1]
            assert place % 256 == 0
            assert place != of_a
            assert (one.name, struct.unpack_from("<5Q", one.words)[3:]) == ("nvjet", (of_a, place))
        handle.build([full(3, 2), full(8, 2)], 1, 0)
        for tokens in (3, 8):
            wanted = launched(fake, handle, plain(tokens, 2))
            assert launched(fake, handle, full(tokens, 2)) == wanted


def test_a_table_that_cannot_spread_scales_takes_its_own_kernel(
    fake: Fake, arena: RawArena
) -> None:
    """Such as one of before the store had these products: its scales lie in another order."""
    step, entry = scaled_step("blocks", spreads=False), scaled_entry(8, "blocks")
    with scaled_player(arena, step, [scaled_offer(8, "blocks")], entry) as handle:
        assert product(fake, handle, 8).name == "scaled_linear"
        assert handle.gemms(8, 2)[0]["route"] == "triton"


def in_order(step: Step) -> Step:
    """The step ordered by the edges of its table, without decode and its own nodes."""
    table = step.table
    nodes = tuple(node for node in table.nodes if node.when is When.ALWAYS)[1:-1]
    edges = tuple(Edge(index, index + 1) for index in range(len(nodes) - 1))
    segments = (Segment(SegmentKind.PIECE, "1" * 16, len(nodes)),)
    return Step(replace(table, nodes=nodes, segments=segments, edges=edges))


def test_the_measured_choice_goes_first(fake: Fake, arena: RawArena) -> None:
    offers = [scaled_offer(8, "rows", route=2), scaled_offer(32, "rows", route=1)]
    entries = [scaled_entry(rows, "rows") for rows in (8, 32)]
    with scaled_player(arena, scaled_step("rows"), offers, *entries) as handle:
        assert product(fake, handle, 8).name == "scaled_linear"
        assert product(fake, handle, 9).name == "nvjet"


@pytest.mark.parametrize(
    "other",
    [scaled_offer(8, "tensor"), scaled_offer(8, "rows", has_c=True)],
    ids=["scales", "bias"],
)
def test_an_entry_of_other_scales_or_with_a_bias_is_another_product(
    fake: Fake, arena: RawArena, other: object
) -> None:
    entry = scaled_entry(8, "rows")
    with scaled_player(arena, scaled_step("rows"), [other], entry) as handle:  # type: ignore[list-item]
        assert product(fake, handle, 8).name == "scaled_linear"


@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks", "mixed"])
def test_a_player_says_of_its_products_what_the_table_does(arena: RawArena, scales: str) -> None:
    step = scaled_step(scales, has_c=True)
    with scaled_player(arena, step, []) as handle:
        told = Products.told(handle.products())
    assert told == products_of_tables([decode(step.data)])
    family = (HIDDEN, HIDDEN, "float8_e4m3fn", True, "bfloat16", scales)
    assert told.gemms[family] == TOKENS
    storable = {row[1:] for row in told.rows((8, TOKENS))}
    refused = {one.shape.scales: one.why for one in told.unstorable()}
    assert (family in storable) == (scales in ("tensor", "rows"))
    assert set(refused) == ({scales} - {"tensor", "rows"})  # of blocks k is 16 here


def test_scales_beyond_their_region_are_refused(arena: RawArena) -> None:
    entry = scaled_entry(8, "rows", most=1 << 20)
    with (
        scaled_player(arena, scaled_step("rows"), [scaled_offer(8, "rows")], entry) as handle,
        pytest.raises(GraphError, match="bytes of operand 5"),
    ):
        handle.build([full(8, 2)], 1, 0)


def test_a_product_that_nobody_computes_is_named_with_its_scales(arena: RawArena) -> None:
    step = scaled_step("rows", has_c=True, variants=False)
    with (
        scaled_player(arena, step, []) as handle,
        pytest.raises(GraphError, match="by 16 x 16 of fp8, scales: rows plus c"),
    ):
        handle.build([full(4, 2)], 1, 0)
