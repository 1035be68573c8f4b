"""What the whole suite says at its end: skips by the device they lack, and stale GPU results."""

from __future__ import annotations

import pytest
from benchmarks.gpu.digest import stale


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which GPU results were measured on other sources; never a failure."""
    skipped = terminalreporter.stats.get("skipped", [])
    without = [report for report in skipped if "gpu" in report.keywords]
    if without:
        terminalreporter.write_line(f"{len(without)} gpu tests skipped: make gpu-test runs them")
    for name in stale():
        terminalreporter.write_line(
            f"STALE docs/benchmarks/{name}: measured on other sources; make gpu-bench measures anew"
        )
