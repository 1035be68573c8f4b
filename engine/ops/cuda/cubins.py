"""The cubins of `csrc/kernels` in this install: which there are, why not, and their verified bytes.

An install compiles them where it finds nvcc: `_lib/kernels/<arch>/<operator>.cubin` beside an
`index.json` that says what is in each. No torch, and nothing is read before it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import vcc
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError

FORMAT = 1
INDEX = "index.json"
MOST_INDEX, MOST_CUBIN = 1 << 20, 64 << 20
"""Bytes that are read of a file at most."""

WITHOUT = "no nvcc was found when vcc was installed: put CUDA 12 or later on PATH and reinstall vcc"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A kernel in a cubin, as the index has it.

    Attributes:
        threads: most threads of a block.
        registers: of a thread.
        shared: static shared memory of a block, bytes.
        param_bytes: size of the parameter block.
    """

    threads: int
    registers: int
    shared: int
    param_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An operator's cubin: its SHA-256 in hex, its size, its kernels by name."""

    sha256: str
    size: int
    symbols: Mapping[str, Symbol]


@dataclass(frozen=True, slots=True)
class Index:
    """All cubins for one architecture.

    Attributes:
        arch: as compiled: `sm_90a`.
        toolkit: version of the compiler, such as "13.0".
        cubins: by operator.
        folder: where they are.
    """

    arch: str
    toolkit: str
    cubins: Mapping[str, Entry]
    folder: Path

    @property
    def driver(self) -> int:
        """The oldest driver that loads them: a toolkit's cubins need a driver of its major."""
        return int(self.toolkit.partition(".")[0]) * 1000


def folder() -> Path | None:
    """Where this install has cubins, or None."""
    places = (Path(one) / "_lib" / "kernels" for one in vcc.__path__)
    return next((place for place in places if place.is_dir()), None)


def architectures(root: Path | None = None) -> tuple[str, ...]:
    """What there are cubins for, as compiled: `sm_90a`."""
    root = root or folder()
    return tuple(sorted(path.parent.name for path in root.glob(f"sm_*/{INDEX}"))) if root else ()


def targets(root: Path | None = None) -> tuple[str, ...]:
    """The targets that these cubins serve, in every spelling: `sm_90` and `sm_90a`."""
    found = {name for arch in architectures(root) for name in (arch, arch.rstrip("af"))}
    return tuple(sorted(found))


def missing(arch: str = "", root: Path | None = None) -> str:
    """Why there is no cubin, for an architecture or at all; empty where there are."""
    found = targets(root)
    if not found:
        return WITHOUT
    if arch and arch not in found:
        return f"csrc/kernels is compiled for {', '.join(architectures(root))} here, not for {arch}"
    return ""


def index(arch: str, root: Path | None = None) -> Index:
    """The index for a target: `sm_90` finds `sm_90a`.

    Raises:
        IntegrityError: there is none, or it is damaged.
    """
    root = root or folder()
    if root is None or missing(arch, root):
        raise IntegrityError("there are no CUDA kernels of csrc/kernels", missing(arch, root))
    names = [one for one in architectures(root) if arch in (one, one.rstrip("af"))]
    return _read(root / names[0])


@cache
def _read(place: Path) -> Index:
    data = _bytes(place / INDEX, MOST_INDEX)
    try:
        return _index(json.loads(data), place)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(place / INDEX, f"{type(error).__name__}: {error}") from None


def _index(found: Mapping[str, Any], place: Path) -> Index:
    if found["format"] != FORMAT or found["arch"] != place.name:
        raise ValueError(f"format {found['format']!r} for {found['arch']!r}")
    cubins = {
        str(name): Entry(
            str(entry["sha256"]),
            int(entry["bytes"]),
            {str(symbol): Symbol(**numbers) for symbol, numbers in entry["symbols"].items()},
        )
        for name, entry in found["cubins"].items()
    }
    return Index(str(found["arch"]), str(found["toolkit"]), cubins, place)


def version(arch: str = "", root: Path | None = None) -> str:
    """What tells the cubins of two installs apart: compiler and digest of the index.

    Args:
        arch: the target; empty for whichever comes first.
        root: the folder of architectures, if it is not this install's.
    """
    try:
        found = index(arch or next(iter(architectures(root)), ""), root)
    except IntegrityError:
        return "damaged"
    data = _bytes(found.folder / INDEX, MOST_INDEX)
    return f"{found.toolkit} {Digest.of(data).hex[:16]}"


def read(index: Index, op: str) -> bytes:
    """An operator's cubin, verified.

    Raises:
        IntegrityError: it is not there, or not what the index says.
    """
    entry = index.cubins.get(op)
    path = index.folder / f"{op}.cubin"
    if entry is None:
        raise _damaged(index.folder / INDEX, f"it has no operator {op}")
    data = _bytes(path, MOST_CUBIN)
    if len(data) != entry.size or Digest.of(data).hex != entry.sha256:
        raise _damaged(path, "its SHA-256 is not the one of the index")
    return data


def _bytes(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise _damaged(path, str(error)) from None
    if len(data) > most:
        raise _damaged(path, f"it is larger than {most} bytes")
    return data


def _damaged(path: Path, why: str) -> IntegrityError:
    return IntegrityError(f"cannot use the CUDA kernels in {path.name}", why, "reinstall vcc")
