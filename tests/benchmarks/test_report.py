"""The page of figures is what its JSON files say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu.common import Row
from benchmarks.missed import WHY, why
from benchmarks.report import GPU_HEAD, PAGE, RESULTS, gpu_sections, page

ROWS = (
    Row("speed", 31.25, "GB/s", 25, at_least=True),
    Row("boot", 1.0, "s", 0.9, note="why it is late"),
    Row("peer", None, "s", note="no compiler"),
    Row("gap", None, "us", 20),
)


def test_the_page_is_made_from_the_json_beside_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/benchmarks/report.py"


def test_gpu_results_are_shown_with_limits_reached_and_missed(tmp_path: Path) -> None:
    content = {"what": "boots", "machine": {"gpu": "X"}, "rows": [asdict(row) for row in ROWS]}
    content["tables"] = {"Budget": {"1b": {"import": 0.12345, "notes": "n"}, "8b": {"weights": 1}}}
    (tmp_path / "gpu-boot.json").write_text(json.dumps(content))
    (tmp_path / "gpu-another.json").write_text(json.dumps(content | {"tables": {}}))
    head, boot, other = gpu_sections(tmp_path)
    assert head == GPU_HEAD
    assert "| speed | 31.25 GB/s | ≥ 25 | ok |" in boot
    assert "| boot | 1 s | ≤ 0.9 | **missed**: why it is late |" in boot
    assert "| peer | not measured |  | no compiler |" in boot
    assert "| gap | not measured | ≤ 20 | **missed** |" in boot
    assert "| | import | notes | weights |\n|---|---|---|---|\n| 1b | 0.1235 | n |  |" in boot
    assert other.startswith("### another")


def test_a_missed_limit_has_its_reason_and_a_kept_one_none() -> None:
    assert "AOTInductor" in why("compile", "| 16 layers | 0.7 | 0.6 | **above** |")
    assert "0022" in why("decode-8b", "| gap | 45 us | ≤ 20 | **missed** |")
    assert why("decode-8b", "| gap | 5 us | ≤ 20 | ok |") == ""


def test_reasons_are_of_benchmarks_that_there_are() -> None:
    names = {path.stem.removeprefix("gpu-").split("-")[0] for path in RESULTS.glob("*.json")}
    assert WHY.keys() <= names


def test_without_gpu_results_there_is_no_heading(tmp_path: Path) -> None:
    assert list(gpu_sections(tmp_path)) == []


def test_a_row_says_whether_its_limit_is_reached() -> None:
    assert [row.reached for row in ROWS] == [True, False, True, False]
