"""What the commands show of ranges: the dry run's compiles, the artifact's table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gpu_artifacts import manifest, publish, table_and_blobs

from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cli.range_report import range_rows
from vcc.engine.graphs.planner.figures import figures
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Symbol

CONFIG = '{"backend": "eager", "compile_ranges": [8, 32], "compile_sizes": [16, 64]}'
SIZES = ("1 to 8", "9 to 32", "33 to 128", "16", "64")
OPTIONS = ("--dtype", "fp32", "--max-num-batched-tokens", "128", "--max-num-seqs", "8")


def test_ranges_are_told_before_and_after_a_build(vcc: Any, tmp_path: Path) -> None:
    asked = ("compile", "demo", *OPTIONS, "--compilation-config", CONFIG)
    store = ("--cache-dir", str(tmp_path / "store"))
    dry = vcc(*asked, *store, "--dry-run")
    assert "compiles: each unique piece once for 5 ranges of sizes: 1-8, 9-32" in dry.out
    assert vcc(*asked, *store, "--dry-run", "--json").json["compiles"]["pieces"] is None
    assert vcc(*asked, *store, "--json").json["counters"]["compiles"] == 3
    told = vcc("inspect", "artifact", "demo", *store).out
    table = told.partition("ranges of sizes\n")[2]
    lines = [line.strip() for line in table.splitlines()[1:6]]
    assert all(line.startswith(one) for one, line in zip(SIZES, lines, strict=True))
    assert vcc(*asked, *store, "--dry-run", "--json").json["compiles"]["total"] == 0


def test_hundreds_of_ranges_are_told_by_their_ends_and_their_number(vcc: Any) -> None:
    ends = json.dumps([*range(1, 401)])
    asked = ("compile", "demo", "--dry-run", *OPTIONS[:2], "--max-num-batched-tokens", "512")
    config = ("--compilation-config", f'{{"backend": "eager", "compile_ranges": {ends}}}')
    told = vcc(*asked, *config).out.splitlines()
    assert max(map(len, told)) < 250
    (line,) = (one for one in told if one.startswith("compiles: "))
    assert "for 401 ranges of sizes: 1, 2, 3, 4 … 398, 399, 400, 401-512" in line
    assert len(vcc(*asked, *config, "--json").json["compiles"]["ranges"]) == 401


def test_of_a_long_table_of_ranges_the_ends_are_shown() -> None:
    rows = range_rows([{"sizes": f"{i}-{i}", "pieces": 1, "compiled": []} for i in range(1, 42)])
    sizes = [row[0] for row in rows[1:]]
    assert sizes == ["1", "2", "3", "4", "…", "38", "39", "40", "41"]
    assert rows[5][-1] == "41 ranges in all"
    assert len(range_rows([{"sizes": "1-1"}] * 40)) == 41


def test_a_manifest_from_elsewhere_breaks_no_table() -> None:
    assert range_rows(None) == range_rows([]) == range_rows("x") == []
    rows = range_rows([{"sizes": "4-4", "passes": {"one": 2, "two": "skipped"}}, {}, 3])
    assert rows[1:] == [("4", "?", "?", "one 2"), ("? to ", "?", "?", "none")]


@pytest.fixture
def ranged(own_store: object) -> Entry:
    """A GPU artifact with a table for each of three ranges."""
    table, blobs = table_and_blobs()
    del blobs["table/step"]
    rows = []
    for low, high in ((1, 8), (9, 64), (16, 16)):
        symbols = tuple(Symbol("T", low, high) if one.name == "T" else one for one in table.symbols)
        one = replace(table, symbols=symbols)
        blobs[f"table/step/{low}-{high}"] = encode(one)
        rows.append({"sizes": f"{low}-{high}", "table": figures(one, encode(one))})
    info = {name: value for name, value in manifest().info.items() if name != "table"}
    return publish(Store.open(None), blobs, info={**info, "ranges": rows})


@pytest.mark.parametrize(
    ("tokens", "label"), [(8, "1-8"), (9, "9-64"), (16, "16-16"), (17, "9-64")]
)
def test_a_graph_of_so_many_tokens_is_that_of_its_range(
    vcc: Any, ranged: Entry, tokens: int, label: str
) -> None:
    found = vcc("inspect", "graph", ranged.artifact, "--tokens", str(tokens), "--json").json[
        "tables"
    ]
    assert list(found) == [f"table/step/{label}"]
    assert found[f"table/step/{label}"]["sizes"]["T"] == tokens


def test_without_a_number_of_tokens_all_tables_are_shown(vcc: Any, ranged: Entry) -> None:
    found = vcc("inspect", "graph", ranged.artifact, "--json").json["tables"]
    lowest = {label: one["sizes"]["T"] for label, one in found.items()}
    assert lowest == {"table/step/1-8": 1, "table/step/9-64": 9, "table/step/16-16": 16}


def test_tokens_that_no_range_holds_are_refused_with_the_ranges(vcc: Any, ranged: Entry) -> None:
    done = vcc("inspect", "graph", ranged.artifact, "--tokens", "65")
    assert done.code == 2
    assert "T = 65 is outside the tables' ranges" in done.err
    assert "1 to 8, 9 to 64, 16 to 16" in done.err


def test_an_artifact_tells_its_tables_together(vcc: Any, ranged: Entry) -> None:
    text = vcc("inspect", "artifact", ranged.artifact).out
    assert "3 a table in 2 cubins" in text
    assert "tables       3, " in text
    assert "ranges of sizes" in text
    listed = text.partition("blobs")[2]
    assert all(f"table/step/{name}" in listed for name in ("1-8", "9-64", "16-16"))
