"""Tests on a CUDA device: they are skipped, and counted, where there is none.

`--gpu-json` writes docs/benchmarks/gpu-tests.json at the end; `make gpu-test` gives it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from functools import cache

import pytest
from benchmarks.gpu.common import Row, publish


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that leaves a result."""
    parser.addoption("--gpu-json", action="store_true", help="write gpu-tests.json")


@pytest.fixture(autouse=True, scope="package")
def no_recording_beside() -> Iterator[None]:
    """Runs leave no process behind that records: it would use the device that is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VCC_RECORD_PRODUCTS", "0")
        yield


@cache
def missing_device() -> str:
    """Why nothing can run on a GPU here; empty where it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) on this machine"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "a CUDA driver but no device"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is no device; the driver is not asked otherwise."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    why = missing_device() if marked else ""
    for item in marked if why else ():
        item.add_marker(pytest.mark.skip(reason=why))


def pytest_configure(config: pytest.Config) -> None:
    """When the session began."""
    config.stash[STARTED] = time.perf_counter()


STARTED: pytest.StashKey[float] = pytest.StashKey()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Write what passed, failed and was skipped, if it was asked for."""
    if not config.getoption("--gpu-json", default=False) or missing_device():
        return
    stats = terminalreporter.stats
    counts = {kind: len(stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")}
    rows = [
        Row("passed", counts["passed"]),
        Row("failed", counts["failed"] + counts["error"], limit=0),
        Row("skipped", counts["skipped"]),
        Row("time", round(time.perf_counter() - config.stash[STARTED], 1), "s"),
    ]
    failed = [report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())]
    skipped = sorted({str(report.longrepr) for report in stats.get("skipped", ())})
    publish("tests", "the tests of tests/gpu", rows, {"failures": failed, "skips": skipped})
