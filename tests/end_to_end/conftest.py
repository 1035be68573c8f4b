"""Commands of the end-to-end tests, in this process and in fresh ones."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.flow import kept_environment

from vcc.cli import main

ENTRY = "from vcc.cli.main import main; main()"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Models here are tiny: one thread computes them faster than two that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def demo_store(demo_shelf: Path, tmp_path: Path) -> Path:
    """A store of the test's own that holds the demo."""
    return Path(shutil.copytree(demo_shelf, tmp_path / "store"))


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object on standard output."""
        return json.loads(self.out)


@pytest.fixture
def vcc(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Done]]:
    """Run a command in this process."""
    handlers = list(logging.root.handlers)

    def run(*words: object, store: Path) -> Done:
        capsys.readouterr()
        with kept_environment():
            os.environ["VCC_CACHE_DIR"] = str(store)
            code = main.run([str(word) for word in words])
        return Done(int(code), *capsys.readouterr())

    yield run
    logging.root.handlers[:] = handlers


@pytest.fixture
def spawn() -> Callable[..., Done]:
    """Run a command, or lines of Python with its words as arguments, in a fresh process."""

    def run(*words: object, store: Path, code: str = ENTRY, flags: tuple[str, ...] = ()) -> Done:
        # With several threads a busy machine makes small steps a hundred times slower.
        own = {"VCC_CACHE_DIR": str(store), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *flags, "-c", code, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=os.environ | own,
            timeout=300,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
