"""`vcc compile` of one small module in a fresh process, with a compiler made to order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MODEL = """
import torch
from torch import nn

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(48, 48)
        self.register_buffer("table", torch.arange(48.0), persistent=False)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.inner(x)) + self.table
        return y / y.norm(dim=-1, keepdim=True), y.mean(0)

def make():
    torch.manual_seed(0)
    return Small()
"""

WRAPPER = """#!/bin/sh
case "$*" in *-dump*|*--version*|*-print*) exec {real} "$@";; esac
{body}
"""


@dataclass(frozen=True)
class Command:
    """A `vcc compile` of the module: folder of the model, store, temporary folder."""

    folder: Path
    store: Path
    temp: Path

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start it in a fresh process."""
        self.temp.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(p for p in sys.path if p)
        own = {"PYTHONPATH": path, "TMPDIR": str(self.temp), **environment}
        # A CXX of the machine would win over the compiler that a test puts on PATH.
        env = {name: value for name, value in os.environ.items() if name != "CXX"} | own
        command = [sys.executable, "-m", "vcc.cli.main", "compile", "small:make", "--json"]
        shape = ["--shape", "x=1-64x48", "--dtype", "fp32", "--cache-dir", str(self.store)]
        return subprocess.Popen(
            [*command, *shape, *words],
            cwd=self.folder,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@dataclass(frozen=True)
class Left:
    """How a build ended and what it left."""

    code: int
    out: str
    err: str
    processes: dict[int, str]
    temp: list[str]
    store: list[str]


def compiler_that(body: str, folder: Path) -> str:
    """A PATH whose g++ answers questions about itself and does `body` when asked to compile."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "g++"
    script.write_text(WRAPPER.format(real=shutil.which("g++"), body=body))
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def listing(folder: Path) -> list[str]:
    """Files below a folder, relative to it."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
