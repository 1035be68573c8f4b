"""What all tests share, and what the whole suite says at its end.

Artifacts that several tests need are compiled once in a session. VCC_TEST_STORE=DIR keeps their
store from one session to the next; what a change of the code makes stale is compiled again.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from benchmarks.gpu.digest import stale
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_configure() -> None:
    """A suite begun in the background would hand ignored signals on to every command it tries."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def fake_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubles of the GPU's libraries, which this process and those that it starts find."""
    from support.fake_libraries import environment

    from vcc.engine import native

    if native.library("vcc_abi") is None:
        pytest.skip("built without a compiler")
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


def _put_back(variables: Mapping[str, str], folder: str | None, collects: bool) -> None:
    """A command that was tried in this process is the last thing its own would have done."""
    for name in (os.environ.keys() | variables.keys()) - {_PYTEST}:
        if name not in variables:
            del os.environ[name]
        elif os.environ.get(name) != variables[name]:
            os.environ[name] = variables[name]
    tempfile.tempdir = folder
    (gc.enable if collects else gc.disable)()


_PYTEST = "PYTEST_CURRENT_TEST"  # changes from phase to phase, and is pytest's own
_FIRST = dict(os.environ), tempfile.tempdir, gc.isenabled()


@pytest.fixture(autouse=True, scope="module")
def _module_begins_as_the_first() -> None:
    _put_back(*_FIRST)


@pytest.fixture(autouse=True)
def _process_is_put_back(_module_begins_as_the_first: None) -> Iterator[None]:
    before = dict(os.environ), tempfile.tempdir, gc.isenabled()
    yield
    _put_back(*before)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the shared store. Tests that change a store take a copy of it."""
    kept = os.environ.get("VCC_TEST_STORE")
    return Path(kept).resolve() if kept else tmp_path_factory.mktemp("shelf") / "store"


@pytest.fixture(scope="session")
def demo_shelf(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the demo as `vcc compile demo` builds it, and nothing else."""
    from support.flow import ask, built  # torch is not needed by every test

    from vcc.cache.store import Store

    made = built(ask("demo"), Store.open(shelf)).loaded
    alone = tmp_path_factory.mktemp("demo") / "store"
    Store.open(alone).publish(made.manifest, made.read_all())
    return alone


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
