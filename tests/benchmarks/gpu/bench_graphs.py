"""Every declared graph of a decoder, ready: milliseconds from the existing context.

    python bench_graphs.py --sizes 1b 8b --threads 2 4 8

Each figure is the median over fresh processes. Writes gpu-graphs.json.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import products
from common import Row, built, median, model, publish, python, store

FIRST_MS, ALL_MS = 30, 150


def times(size: str, threads: int, repeat: int) -> list[dict[str, Any]]:
    """Fresh processes that build everything once."""
    words = ("play_graphs.py", "--model", model(size), "--threads", threads)
    return [python(*words, **store()).json() for _ in range(repeat)]


def stages(found: list[dict[str, Any]]) -> dict[str, float]:
    """Median of each stage and of the whole."""
    names = found[0]["stages_ms"]
    lines = {name: median([one["stages_ms"][name] for one in found], 2) for name in names}
    return lines | {"all": median([one["all_ms"] for one in found], 2)}


def main() -> int:
    """Measure; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=["1b", "8b"])
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rows, table, details = [], {}, {}
    for size in options.sizes:
        details[f"tune {size}"] = choice = products.tuned(built(size, "full"))
        for threads in options.threads:
            found = times(size, threads, options.repeat)
            table[f"{size}, {threads} threads"] = stages(found)
            details[f"{size} {threads}"] = found[-1]
        rows += rows_of(size, threads_best(table, size), details[f"{size} {options.threads[0]}"])
        rows += products.rows_of(choice)
    what = "graphs of a Llama ready, from the existing context, products from the GEMM store"
    more = {"tables": {"Milliseconds": table}, "runs": details}
    return publish("graphs", what, rows, more)


def threads_best(table: dict[str, dict[str, float]], size: str) -> dict[str, float]:
    """The first setting of a size: what a boot uses."""
    return next(stages for name, stages in table.items() if name.startswith(f"{size},"))


def rows_of(size: str, found: dict[str, float], run: dict[str, Any]) -> list[Row]:
    """Figures of one size."""
    first = found["all"] - found["other graphs"]
    return [
        Row(f"{size}: descriptors", run["descriptors"], "", 51, at_least=True),
        Row(f"{size}: first hot graph", first, "ms", FIRST_MS),
        Row(f"{size}: all descriptors", found["all"], "ms", ALL_MS),
        Row(f"{size}: products offered by the GEMM store", run["stored"], note=run["failed"][:80]),
        Row(f"{size}: of these some step takes", run["used"], "", 1, at_least=True),
        Row(f"{size}: peak RSS", run["peak_rss"] / 1e6, "MB"),
    ]


if __name__ == "__main__":
    sys.exit(main())
