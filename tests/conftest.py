"""What the whole suite says at its end: skips by the device they lack, and stale GPU results."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from benchmarks.gpu.digest import stale


def pytest_configure() -> None:
    """A suite begun in the background would hand ignored signals on to every command it tries."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def fast_tmp(tmp_path):
    """A folder in memory where there is one: hundreds of synced files cost nothing there."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="vcc-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


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
