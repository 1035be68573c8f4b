"""Memory and rows of a table at the sizes where they are most, which need not be the largest."""

from __future__ import annotations

from dataclasses import replace

from support.fake_cuda import Fake
from support.fake_cuda.fixtures import RawArena
from support.player_case import launched, names, plain, playing
from support.step_tables import TOKENS, WORKSPACE, Step, toy_step, with_table

from vcc.engine.graphs.table.decode import decode
from vcc.engine.tune.families import Products
from vcc.engine.tune.wanted import products_of_tables

ROW, ROWS, REST = 2048, 24, 16384
MOST = ROWS - 1
"""Rows of a step of 47 tokens: T % 24. The largest step, of 64, has 16."""


def remaining() -> Step:
    """A table whose workspace and first product have T % 24 rows."""
    step = toy_step()
    rows = ["%", "T", ROWS]
    regions = list(step.table.regions)
    regions[WORKSPACE] = replace(regions[WORKSPACE], size=["+", REST, ["*", rows, ROW]])
    first, *others = step.table.gemms
    return with_table(step, regions=tuple(regions), gemms=(replace(first, m=rows), *others))


def test_memory_is_made_for_the_most_that_a_step_has(fake: Fake, arena: RawArena) -> None:
    assert TOKENS % ROWS < MOST
    with playing(arena, remaining()) as handle:
        assert handle.bytes(1).workspace == REST + MOST * ROW
        assert "gemm" in names(launched(fake, handle, plain(47, 4)))


def test_the_store_is_asked_for_the_most_rows_that_a_product_has(arena: RawArena) -> None:
    with playing(arena, remaining()) as handle:
        told = Products.told(handle.products())
        assert told == products_of_tables([decode(remaining().data)])
        assert MOST in told.gemms.values()
