"""What a dry run says of compiles: ranges times unique pieces, from what the store remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.flow import ask, built

from vcc.cache.store import Store
from vcc.engine.compile_count import CompileCount, compile_count
from vcc.engine.request import settle

DEMO: dict[str, Any] = {"dtype": "fp32", "max_num_seqs": 8, "max_num_batched_tokens": 128}
RANGES = {"compile_ranges": [8, 32], "compile_sizes": [16, 64]}


def count(store: Store, config: dict[str, Any]) -> CompileCount:
    return compile_count(settle(ask("demo", **DEMO, config=json.dumps(config))), store)


def test_without_an_artifact_of_the_model_only_the_ranges_are_known(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    found = count(store, RANGES)
    assert found.ranges == ("1-8", "9-32", "33-128", "16-16", "64-64")
    assert found.total is None
    assert str(found) == (
        "each unique piece for each of 5 ranges of sizes: 1-8, 9-32, 33-128, 16, 64"
    )
    assert str(count(store, {})) == "each unique piece once for 1 range of sizes"


@pytest.mark.parametrize("first", [{}, {"compile_ranges": [8]}], ids=["one", "two"])
def test_an_artifact_of_the_model_remembers_its_pieces(
    tmp_path: Path, first: dict[str, Any]
) -> None:
    store, eager = Store.open(tmp_path), {"backend": "eager"}
    built(ask("demo", **DEMO, config=json.dumps({**eager, **first})), store)
    found = count(store, {**eager, **RANGES})
    assert (found.pieces, found.total) == (3, 3), "lists are equal for all ranges"
    assert count(store, RANGES).total is None, "Inductor was never asked to cut this model"


def test_every_range_costs_its_pieces_anew() -> None:
    found = CompileCount(("1-8", "9-64"), 3)
    assert (found.total, str(found)[:18]) == (6, "6: 3 unique pieces")


@pytest.mark.parametrize("mode", ["NO_COMPILATION", "STOCK_TORCH_COMPILE"])
def test_modes_without_code_of_ours_compile_nothing(tmp_path: Path, mode: str) -> None:
    found = count(Store.open(tmp_path), {"mode": mode})
    assert (found.total, str(found)) == (0, "none")
