"""The libcuda double for tests: built once, controlled through its own functions.

`VCC_LIBCUDA=<library()>` gives a process the double; `Fake()` controls it inside this process. What
it models and what it refuses stands in the C++ files beside this one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = Path(__file__).parents[3] / "csrc"


@cache
def library(*flags: str) -> Path:
    """The double as a file, built from source unless these sources were built before.

    Args:
        flags: more flags for the compiler, such as `-fsanitize=address`.
    """
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    sources = sorted(HERE.glob("*.cpp"))
    headers = [*HERE.glob("*.h"), *sorted((CSRC / "driver").glob("*.h"))]
    digest = hashlib.sha256(repr(flags).encode())
    for path in (*sources, *headers):
        digest.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"vcc-fake-cuda-{os.getuid()}-{digest.hexdigest()[:16]}"
    made = folder / "libcuda.so.1"
    if not made.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        part = folder / f"{os.getpid()}.part"
        fixed = ("-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{CSRC}")
        subprocess.run([compiler, *fixed, *flags, *map(str, sources), "-o", str(part)], check=True)
        part.rename(made)
    return made


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that would have run; `words` is its parameter block."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    words: bytes


class Fake:
    """Controls the double in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(library()))
        for name in ("fake_log", "fake_launches"):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.fake_count.restype = ctypes.c_long
        self._library.fake_fail.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)

    @property
    def path(self) -> str:
        """For `vcc_device_open` and VCC_LIBCUDA."""
        return str(library())

    def fail(self, name: str, nth: int = 1, code: int = 2) -> None:
        """The nth next call of `name` ("*": of any function) answers `code` (2: out of memory)."""
        self._library.fake_fail(name.encode(), nth, code)

    @contextmanager
    def holding(self, name: str) -> Iterator[Callable[[], int]]:
        """Calls of a function do not return before the block ends; gives whether one has come.

        Meanwhile no other call of the double returns either, nor does another method of this.
        """
        self._library.fake_hold(name.encode())
        try:
            yield self._library.fake_waits
        finally:
            self._library.fake_release()

    def fault(self, code: int = 700) -> None:
        """The next kernel that runs breaks the context (700: illegal address)."""
        self._library.fake_fault(code)

    def clear(self) -> None:
        """Forget counts, logs, planned failures and faults."""
        self._library.fake_clear()

    def reset(self) -> None:
        """As after cuInit in a new process; every handle becomes invalid."""
        self._library.fake_reset()
        self._library.cuInit(0)

    def count(self, name: str = "*") -> int:
        """Calls of a function (without `_v2`), or of all."""
        return int(self._library.fake_count(name.encode()))

    def log_calls(self, on: bool = True) -> None:
        """Keep a line for each call."""
        self._library.fake_log_calls(int(on))

    def log(self) -> list[str]:
        """The lines: "name" or "name -> code"."""
        text: bytes = self._library.fake_log()
        return text.decode().splitlines()

    def launches(self) -> list[Launch]:
        """The kernels that would have run, of graphs and plain launches alike."""
        text: bytes = self._library.fake_launches()
        return [_launch(line) for line in text.decode().splitlines()]

    def environment(self, **settings: object) -> dict[str, str]:
        """Variables for a child process: `memory=1 << 30` becomes VCC_FAKE_MEMORY."""
        named = {f"VCC_FAKE_{name.upper()}": str(value) for name, value in settings.items()}
        return {"VCC_LIBCUDA": self.path, **named}


def _launch(line: str) -> Launch:
    name, *fields = line.split(" ")
    found = dict(field.split("=") for field in fields)
    grid, block = (tuple(map(int, found[key].split(","))) for key in ("grid", "block"))
    return Launch(name, grid, block, int(found["shared"]), bytes.fromhex(found["words"]))
