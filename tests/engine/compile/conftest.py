"""One small module, built twice by the command line in different folders, for all tests here."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.builds import MODEL, Command, Left, compiler_that, listing
from support.processes import mark, marked, running, wait_for

from vcc.cache.loaded import Loaded
from vcc.cache.store import Store

AROUND = (
    {"PYTHONHASHSEED": "1"},
    {
        "PYTHONHASHSEED": "2",
        "HOME": "/nowhere/at/all",
        "USER": "somebody",
        "VCC_LOG_LEVEL": "error",
        "CUDA_VISIBLE_DEVICES": "3",
        "TORCH_LOGS": "-all",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "FX_GRAPH_SHOW_META": "1",
    },
)
"""Environments that must make no difference, besides `TMPDIR`, which is each build's own."""


@pytest.fixture(scope="session")
def needs_compiler() -> None:
    """Skip where there is no C++ compiler."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "small.py").write_text(MODEL)
    return folder


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all stores and temporary folders here."""
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="session")
def interrupted(needs_compiler: None, model: Path, root: Path) -> dict[int, Left]:
    """Builds whose compiler never ends, ended by a signal; the one by SIGINT in store `one`."""
    path = compiler_that("exec sleep 120", root / "bin")
    stores = {signal.SIGINT: "one", signal.SIGTERM: "term"}
    found: dict[int, Left] = {}
    with ExitStack() as stack:
        marks = {number: stack.enter_context(mark()) for number in stores}
        commands = {n: Command(model, root / s, root / "t" / s) for n, s in stores.items()}
        started = {n: c.start(PATH=path, VCC_TEST_MARK=marks[n]) for n, c in commands.items()}
        for number, process in started.items():
            wait_for(lambda n=number, p=process: running(marks[n], "sleep") or p.poll() is not None)
            process.send_signal(number)
        for number, process in started.items():
            out, err = process.communicate(timeout=60)
            wait_for(lambda n=number: not marked(marks[n]), 5)
            temp, store = map(listing, (commands[number].temp, commands[number].store))
            found[number] = Left(process.returncode, out, err, marked(marks[number]), temp, store)
    return found


@pytest.fixture(scope="session")
def builds(interrupted: object, model: Path, root: Path) -> tuple[Loaded, Loaded]:
    """The artifact of two builds at the same time, everything around them different.

    The first one goes into the store of the interrupted build.
    """
    moved = Path(shutil.copytree(model, root / "another/checkout"))
    commands = [
        Command(model, root / "one", root / "t/one"),
        Command(moved, root / "another/and/deeper", root / "t/another/and/deeper"),
    ]
    started = [c.start(**e) for c, e in zip(commands, AROUND, strict=True)]
    for process in started:
        out, err = process.communicate()
        assert process.returncode == 0, out + err
    stores = [Store.open(command.store) for command in commands]
    found = [store.load(next(iter(store.entries()))) for store in stores]
    return found[0], found[1]
