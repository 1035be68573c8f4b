"""What the commands show of ranges: the dry run's compiles, the artifact's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcc.cli.range_report import range_rows

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


def test_a_manifest_from_elsewhere_breaks_no_table() -> None:
    assert range_rows(None) == range_rows([]) == range_rows("x") == []
    rows = range_rows([{"sizes": "4-4", "passes": {"one": 2, "two": "skipped"}}, {}, 3])
    assert rows[1:] == [("4", "?", "?", "one 2"), ("? to ", "?", "?", "none")]
