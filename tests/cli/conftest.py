"""The command line in this process, with a store of its own and a fake engine."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from support.fake_engine import FakeEngine, install

from vcc.cli import main


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("VCC_CACHE_DIR", str(tmp_path / "store"))
    handlers = list(logging.root.handlers)
    yield tmp_path / "store"
    logging.root.handlers[:] = handlers


@pytest.fixture
def engine(monkeypatch) -> FakeEngine:
    return install(monkeypatch)


@pytest.fixture
def vcc(capsys):
    """Run a command in this process."""

    def run(*words: str) -> Done:
        capsys.readouterr()
        code = main.run(list(words))
        return Done(int(code), *capsys.readouterr())

    return run


@pytest.fixture
def spawn():
    """Start a command, or a few lines of Python, in a fresh process."""

    def start(*words: str, code: str = "", **more) -> subprocess.Popen:
        head = ["-c", code] if code else ["-m", "vcc.cli.main"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(
            [sys.executable, *head, *words], text=True, env=dict(os.environ), **(pipes | more)
        )

    return start
