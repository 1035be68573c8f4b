"""How many rows a product can have, and so which entries of the store a table may take."""

from __future__ import annotations

import pytest

from vcc.engine.graphs.expr import Expr, evaluate
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Gemm, NodeTable, Symbol
from vcc.engine.tune.wanted import most_rows, products_of_tables

HIGHS = {"T": 64, "B": 8}


@pytest.mark.parametrize(
    ("rows", "most"),
    [("T", 64), (["min", "T", 48], 48), (["*", "T", 2], 128), (["%", "T", 24], 23)],
    ids=str,
)
def test_no_step_has_more_rows_than_what_is_asked_for(rows: Expr, most: int) -> None:
    """64 % 24 is 16, and a step of 47 tokens has 23 rows."""
    gemm = Gemm(rows, 8, 4, "float32")
    assert most_rows(gemm, HIGHS) == most
    assert max(evaluate(rows, {**HIGHS, "T": tokens}) for tokens in range(1, 65)) == most


def test_the_products_of_a_table_have_the_most_rows_of_their_family() -> None:
    gemms = (Gemm(["%", "T", 24], 8, 4, "float32"), Gemm("B", 8, 4, "float32"))
    table = NodeTable(
        symbols=tuple(Symbol(*one) for one in (("T", 1, 64), ("B", 1, 8))), gemms=gemms
    )
    encode(table)
    found = products_of_tables([table])
    assert found.gemms == {gemms[0].family: 23}
    assert found.ends == {gemms[0].family: (8, 23)}
    assert not found.fixed


def test_products_whose_rows_are_fixed_are_recorded_at_these_rows_alone() -> None:
    fixed = [Gemm(rows, 8, 4, "float32") for rows in (12544, 49)]
    mixed = [Gemm(rows, 16, 4, "float32") for rows in (["*", 3, "T"], 50)]
    table = NodeTable(symbols=(Symbol("T", 1, 64),), gemms=(*fixed, *mixed))
    found = products_of_tables([table])
    assert found.fixed == {fixed[0].family}
    rows: dict[int, list[int]] = {}
    for m, n, *_ in found.rows((1, 128, 256)):
        rows.setdefault(n, []).append(m)
    assert rows == {8: [49, 12544], 16: [1, 50, 128, 192]}
