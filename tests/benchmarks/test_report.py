"""The page of figures is what its JSON files say."""

from __future__ import annotations

from benchmarks.report import PAGE, page


def test_the_page_is_made_from_the_json_beside_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/benchmarks/report.py"
