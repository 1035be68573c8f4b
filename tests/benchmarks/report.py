"""Make docs/benchmarks.md from docs/benchmarks/*.json: `python tests/benchmarks/report.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from missed import why
else:
    from benchmarks.missed import why

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "docs" / "benchmarks", ROOT / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Every figure is a ratio measured in one run against a named peer, on the machine that is named with
it; `make bench` measures again and writes the JSON files, of which this page is made by
`python tests/benchmarks/report.py`. A ratio below 1 means that vcc takes less. A limit is what the
project asks of itself; **above** marks one that is missed.
"""

MEMORY = ("memory", "memory-sm_90", "memory-experts", "memory-experts-sm_90")
ORDER = ("boot", "compile", "warm", "steps", "passes", "experts", *MEMORY, "store")

GPU_HEAD = """## On a GPU

`make gpu-test` and `make gpu-bench` write these on a machine with a device. Each file names the
sources it was measured on by their digest; the suite prints STALE when they have changed since.
"""
GPU_ORDER = (
    *("tests", "boot", "graphs", "decode", "weights", "arena", "recorder", "kernels"),
    *("ops", "norm_linear", "experts", "scaled_mm", "forwards"),
)


def page() -> str:
    """The whole page."""
    found = {name: RESULTS / f"{name}.json" for name in ORDER}
    parts = [section(name, json.loads(path.read_text())) for name, path in found.items()]
    return "\n".join([HEAD, *parts, *gpu_sections(), PROBE])


def gpu_sections(folder: Path = RESULTS) -> Iterator[str]:
    """A section for each gpu-*.json, known ones in the order of GPU_ORDER; none, no heading."""
    names = [path.stem.removeprefix("gpu-") for path in sorted(folder.glob("gpu-*.json"))]
    rank = {name: number for number, name in enumerate(GPU_ORDER)}
    if names:
        yield GPU_HEAD
    for name in sorted(names, key=lambda name: (rank.get(name.split("-")[0], len(rank)), name)):
        content = json.loads((folder / f"gpu-{name}.json").read_text(encoding="utf-8"))
        yield gpu_section(name, content)


def gpu_section(name: str, content: dict[str, Any]) -> str:
    """One GPU benchmark: what, where, its rows with their limits, and its further tables."""
    where = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    head = [f"### {name}", "", f"{content['what']}.", "", f"Machine: {where}.", ""]
    tables = content.get("tables", {})
    more = [line for title, rows in tables.items() for line in _free_table(title, rows)]
    rows = "\n".join(_rows(content["rows"]))
    said = why(name, rows)
    return "\n".join([*head, rows, "", *([said] if said else []), *more])


def _rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| | measured | limit | |"
    yield "|---|---|---|---|"
    for row in rows:
        value, limit = row["value"], row["limit"]
        shown = "not measured" if value is None else f"{value:.4g} {row['unit']}".rstrip()
        sign = "≥" if row["at_least"] else "≤"
        bound = "" if limit is None else f"{sign} {limit:g}"
        yield f"| {row['name']} | {shown} | {bound} | {_state(row)} |"


def _state(row: dict[str, Any]) -> str:
    value, limit, note = row["value"], row["limit"], row["note"]
    if limit is None:
        return note
    kept = value is not None and (value >= limit if row["at_least"] else value <= limit)
    return ("ok" if kept else "**missed**") + (f": {note}" if note else "")


def _free_table(title: str, rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A table of any columns: {row: {column: value}}."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    yield f"{title}:"
    yield ""
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name, row in rows.items():
        yield f"| {name} | " + " | ".join(_cell(row.get(column)) for column in columns) + " |"
    yield ""


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


PROBE = """## A node table of the demo on an H200

A probe ahead of the GPU work: [h200-probe.json](benchmarks/h200-probe.json), with what it showed in
[decision 0010](decisions/0010-node-table-probe.md); the install and the suite there are in
[h200-install.json](benchmarks/h200-install.json).
"""


def section(name: str, content: dict[str, Any]) -> str:
    """One benchmark: what, where, and its ratios beside their limits."""
    where = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    lines = [f"## {name}", "", f"{content['what']}.", "", f"Machine: {where}.", ""]
    rows = "\n".join(table(content))
    said = why(name, rows)
    return "\n".join([*lines, rows, "", *([said] if said else [])])


def table(content: dict[str, Any]) -> Iterator[str]:
    """Ratios and limits, or the peaks of the memory benchmark."""
    limits = content.get("limits", {})
    ratios = content.get("ratios") or peaks(content)
    yield "| | measured | limit | |"
    yield "|---|---|---|---|"
    for name, value in ratios.items():
        limit = limits.get(name)
        state = "" if limit is None else "ok" if value <= limit else "**above**"
        yield f"| {name} | {value:.3g} | {'' if limit is None else f'{limit:.3g}'} | {state} |"


def peaks(content: dict[str, Any]) -> dict[str, float]:
    """Peak memory in GB of the memory benchmark."""
    return {"peak resident memory of the process tree, GB": content["peak_rss"]["rss_mb"] / 1000}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
