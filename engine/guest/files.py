"""The files of a guest's caches: which are kept, of which kind they are, whether they were used."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.key import is_clean

INDUCTOR, TRITON = "inductor", "triton"
TOPS = (INDUCTOR, TRITON)
MAX_FILE = 1 << 30
MAX_FILES = 200_000
DEEPEST = 12
LONGEST = 1024
RESTORED = 10**18
"""Time of change of a restored file, in nanoseconds since 1970: long ago by any clock."""

_PASSING = re.compile(r"(?:\.lock|\.tmp|\.temp|~)\Z|\Atmp\.pid_|\A\.")
_PASSING_FOLDERS = frozenset({"locks", "dump", "__pycache__"})
_ELF = struct.Struct("<16xHHIQQQIHHHHHH")


@dataclass(frozen=True, slots=True)
class File:
    """A file below the folder of the caches.

    Attributes:
        path: from there, with slashes.
        size: bytes.
        changed: nanoseconds since 1970.
    """

    path: str
    size: int
    changed: int


KINDS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("FX graphs", lambda path: path.startswith(f"{INDUCTOR}/fxgraph/")),
    ("autograd graphs", lambda path: path.startswith(f"{INDUCTOR}/aotautograd/")),
    ("C++ kernels", lambda path: path.startswith(f"{INDUCTOR}/") and path.endswith(".so")),
    ("Triton kernels", lambda path: path.endswith((".cubin", ".hsaco"))),
    ("Triton launchers", lambda path: path.startswith(f"{TRITON}/") and path.endswith(".so")),
    ("autotuning results", lambda path: path.endswith((".best_config", ".autotune.json"))),
    ("sources and the rest", lambda path: True),
)
"""Kinds in the order in which they are asked."""


def kind_of(path: str) -> str:
    """The kind of a file."""
    return next(name for name, fits in KINDS if fits(path))


def files_of(folder: Path) -> Iterator[File]:
    """Regular files that are worth keeping; what cannot be read or goes away meanwhile is none."""
    for top in TOPS:
        yield from _walk(folder / top, top, 0)


def _walk(folder: Path, path: str, depth: int) -> Iterator[File]:
    with suppress(OSError), os.scandir(folder) as found:
        for one in sorted(found, key=lambda one: one.name):
            inner = f"{path}/{one.name}"
            if not is_name(one.name) or len(inner) > LONGEST:
                continue
            if one.is_dir(follow_symlinks=False):
                if depth < DEEPEST and one.name not in _PASSING_FOLDERS:
                    yield from _walk(folder / one.name, inner, depth + 1)
            elif one.is_file(follow_symlinks=False):
                with suppress(OSError):
                    state = one.stat(follow_symlinks=False)
                    yield File(inner, state.st_size, state.st_mtime_ns)


def is_name(name: str) -> bool:
    """Whether a part of a path is kept: plain text, no lock, nothing that is being written."""
    if name in ("", ".", "..") or "/" in name or not name.isprintable() or not is_clean(name):
        return False
    return len(name.encode()) <= 255 and _PASSING.search(name) is None


def is_path(path: str) -> bool:
    """Whether a stored path leads to a place below the caches."""
    top, *parts = path.split("/")
    inside: bool = top in TOPS and 1 <= len(parts) <= DEEPEST + 1 and len(path) <= LONGEST
    return inside and all(map(is_name, parts))


def is_whole(path: str, data: bytes) -> bool:
    """False for a library whose linker was stopped: its tables would lie behind its end."""
    if not path.endswith(".so"):
        return True
    if len(data) < _ELF.size or data[:4] != b"\x7fELF" or data[4] != 2:
        return False
    fields = _ELF.unpack_from(data)
    sections, size, count = fields[5], fields[10], fields[11]
    return bool(0 < sections <= len(data) - size * count)


def make_unread(file: Path) -> None:
    """Make a file old, so that reading it will show: its time of access becomes a later one."""
    os.utime(file, ns=(RESTORED, RESTORED))


def was_read(folder: Path, path: str) -> bool:
    """Whether a file was read since `make_unread`."""
    with suppress(OSError):
        state = os.stat(folder / path, follow_symlinks=False)
        return state.st_atime_ns > state.st_mtime_ns
    return False


def shows_reads(folder: Path) -> bool:
    """Whether this file system notes when a file is read (it is not mounted with noatime)."""
    probe = folder / ".probe"
    try:
        probe.write_bytes(b"x")
        make_unread(probe)
        probe.read_bytes()
        return was_read(folder, probe.name)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink()


def counted(paths: Iterable[str]) -> dict[str, int]:
    """How many of each kind."""
    found = {name: 0 for name, _ in KINDS}
    for path in paths:
        found[kind_of(path)] += 1
    return found
