"""Convolutions in Triton, by its interpreter; bf16 is left to the device."""

from __future__ import annotations

import pytest
from support.interpreted import run_interpreted

from vcc.engine.ops.triton.wrapped_convolution import ENOUGH, TILES, Form, choice

FORM = Form((7, 7), (3, 3), (1, 1), (1, 1), (1, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_convolutions_by_the_interpreter(dtype: str) -> None:
    run_interpreted("convolution_cases", dtype)


def test_the_kernel_compiles_with_its_integers_as_constants() -> None:
    """As torch 2.11 does to see what it writes; failing that, its inputs count as written."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    from vcc.engine.ops.triton.convolution import convolution

    tiles = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}
    constants = {"places": 49, "CHANNELS": 64, "FILTERS": 8, "PARTS": 2, **FORM.named(), **tiles}
    names = convolution.arg_names
    signature = {name: "constexpr" if name in constants else "*bf16" for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = triton.compiler.ASTSource(convolution, signature, values, {})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert made.asm["ttir"].count("tt.store") == 1


@pytest.mark.parametrize(
    ("places", "filters", "channels", "parts"),
    [
        (32 * 56 * 56, 64, 64, 1),  # many images
        (56 * 56, 64, 64, 3),
        (49, 512, 512, 7),  # one image, far down
        (49, 512, 32, 2),  # too few steps for more
    ],
)
def test_few_places_are_cut_along_their_sum(
    places: int, filters: int, channels: int, parts: int
) -> None:
    tile, found = choice(places, filters, 9 * channels, channels, 2)
    assert found == parts
    assert channels % tile.k == 0
    programs = -(-places // tile.m) * -(-filters // tile.n)
    assert parts == 1 or programs < ENOUGH


@pytest.mark.parametrize("filters", [8, 64, 100, 128])
def test_no_tile_is_wider_than_the_filters_or_the_least(filters: int) -> None:
    tile, _ = choice(1 << 20, filters, 576, 64, 2)
    assert tile.n == (128 if filters == 128 else 64)


def test_sizes_that_move_have_one_tile_and_no_parts() -> None:
    assert choice("N", 64, 576, 64, 2) == (TILES[2][-1], 1)
