"""Make docs/benchmarks.md from docs/benchmarks/*.json: `python tests/benchmarks/report.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "docs" / "benchmarks", ROOT / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

Every figure is a ratio measured in one run against a named peer, on the machine that is named with
it; `make bench` measures again and writes the JSON files, of which this page is made by
`python tests/benchmarks/report.py`. A ratio below 1 means that vcc takes less. A limit is what the
project asks of itself; **above** marks one that is missed.
"""

ORDER = ("boot", "compile", "steps", "memory")


def page() -> str:
    """The whole page."""
    found = {name: RESULTS / f"{name}.json" for name in ORDER}
    parts = [section(name, json.loads(path.read_text())) for name, path in found.items()]
    return "\n".join([HEAD, *parts, PROBE])


PROBE = """## A node table of the demo on an H200

A probe ahead of the GPU work: [h200-probe.json](benchmarks/h200-probe.json), with what it showed in
[decision 0010](decisions/0010-node-table-probe.md); the install and the suite there are in
[h200-install.json](benchmarks/h200-install.json).
"""


def section(name: str, content: dict[str, Any]) -> str:
    """One benchmark: what, where, and its ratios beside their limits."""
    where = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    lines = [f"## {name}", "", f"{content['what']}.", "", f"Machine: {where}.", ""]
    return "\n".join([*lines, *table(content), ""])


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
