"""Power loss, after ALICE (Pillai and others, OSDI 2014): what may be on the disk at each instant.

The calls of a piece of work are recorded and replayed on a model of a file system in which a file
has the bytes of its last `fsync`, and a folder the names of its last one. Whatever came later may
be there or not, in any order. Each instant therefore has many states; those that are made are

    dropped      nothing that was not synced
    names        every name, no bytes that were not synced
    torn         every name, half of the bytes
    kept         everything
    one name     one of the names that were not synced, without the others
    all but one  all of them without one
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

State = dict[str, "bytes | None"]
"""What lies below the root after the loss: path to bytes, None for a folder."""


@dataclass(eq=False)
class File:
    """Bytes as written, and as of the last sync."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


@dataclass(eq=False)
class Dir:
    """Names of the last sync, and what was done to names since, in order."""

    durable: dict[str, File | Dir] = field(default_factory=dict)
    pending: list[tuple[str, File | Dir | None]] = field(default_factory=list)

    def names(self, kept: Callable[[int], bool] = lambda index: True) -> dict[str, File | Dir]:
        """The names, with those pending changes whose number is kept."""
        found = dict(self.durable)
        for index, (name, item) in enumerate(self.pending):
            if not kept(index):
                continue
            if item is None:
                found.pop(name, None)
            else:
                found[name] = item
        return found


Kept = Callable[[Dir, int], bool]


def _none(folder: Dir, number: int) -> bool:
    return False


def _all(folder: Dir, number: int) -> bool:
    return True


def _synced(file: File) -> bytes:
    return file.durable


def _half(file: File) -> bytes:
    return max(file.durable, bytes(file.data[: len(file.data) // 2]), key=len)


def _whole(file: File) -> bytes:
    return bytes(file.data)


class Disk:
    """The model of everything below `root`, which starts as it is, all of it synced."""

    def __init__(self, root: Path) -> None:
        self.items: dict[int, File | Dir] = {}
        self.root = self._read(root)

    def _read(self, path: Path) -> Dir:
        folder = Dir()
        self.items[path.stat().st_ino] = folder
        for inner in path.iterdir():
            if inner.is_dir():
                folder.durable[inner.name] = self._read(inner)
            else:
                data = inner.read_bytes()
                folder.durable[inner.name] = File(bytearray(data), data)
                self.items[inner.stat().st_ino] = folder.durable[inner.name]
        return folder

    def states(self) -> Iterator[State]:
        """What a loss of power at this instant may leave."""
        pending = [(folder, n) for folder in self._dirs() for n in range(len(folder.pending))]
        yield self._state(_none, _synced)
        for data in (_synced, _half, _whole):
            yield self._state(_all, data)
        for change in pending:
            yield self._state(lambda *one, change=change: one == change, _synced)
            yield self._state(lambda *one, change=change: one != change, _synced)

    def _dirs(self) -> list[Dir]:
        return [item for item in self.items.values() if isinstance(item, Dir)]

    def _state(self, kept: Kept, data: Callable[[File], bytes]) -> State:
        """With the pending changes that are `kept`, and of each file the bytes that `data` says."""
        found: State = {}

        def walk(folder: Dir, path: str) -> None:
            for name, item in folder.names(lambda n: kept(folder, n)).items():
                found[f"{path}{name}"] = None if isinstance(item, Dir) else data(item)
                if isinstance(item, Dir):
                    walk(item, f"{path}{name}/")

        walk(self.root, "")
        return found


def record(root: Path, work: Callable[[], object]) -> list[State]:
    """Do the work below `root`; every state that a loss of power could leave, each once.

    Raises:
        AssertionError: the model does not end as the disk does, so a call was not recorded.
    """
    disk = Disk(root)
    seen: dict[bytes, State] = {}

    def instant() -> None:
        for state in disk.states():
            seen.setdefault(_digest(state), state)

    instant()
    with _recorded(disk, instant):
        work()
    assert disk._state(_all, _whole) == state_of(root)
    return list(seen.values())


def state_of(root: Path) -> State:
    """What lies below `root` now."""
    paths = sorted(root.rglob("*"))
    return {str(p.relative_to(root)): None if p.is_dir() else p.read_bytes() for p in paths}


def restore(state: State, place: Path) -> None:
    """Make a state real."""
    place.mkdir(mode=0o700)
    for path, data in sorted(state.items()):
        if data is None:
            (place / path).mkdir(mode=0o700)
        else:
            (place / path).write_bytes(data)
            (place / path).chmod(0o600)


def _digest(state: State) -> bytes:
    text = sha256()
    for path, data in sorted(state.items()):
        text.update(path.encode() + (b"\0d" if data is None else b"\0f" + sha256(data).digest()))
    return text.digest()


@contextmanager
def _recorded(disk: Disk, instant: Callable[[], None]) -> Iterator[None]:
    """Replace the calls of `os` by ones that tell the model too."""
    with pytest.MonkeyPatch.context() as patch:
        for name, tell in _TELL.items():
            patch.setattr(os, name, _telling(getattr(os, name), tell, disk, instant))
        yield


def _telling(real: Callable, tell: Callable, disk: Disk, instant: Callable) -> Callable:
    def call(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        if tell(disk, result, *args, **options) is not False:
            instant()
        return result

    return call


def _dir(disk: Disk, fd: int | None) -> Dir | None:
    item = None if fd is None else disk.items.get(os.fstat(fd).st_ino)
    return item if isinstance(item, Dir) else None


def _mkdir(disk, result, name, mode=0o777, *, dir_fd=None):
    above = _dir(disk, dir_fd)
    if above is None:
        return False
    made = Dir()
    disk.items[os.stat(name, dir_fd=dir_fd).st_ino] = made
    above.pending.append((name, made))
    return True


def _open(disk, result, name, flags, mode=0o777, *, dir_fd=None):
    above = _dir(disk, dir_fd)
    if above is None or not flags & os.O_CREAT or name in above.names():
        return False
    made = File()
    disk.items[os.fstat(result).st_ino] = made
    above.pending.append((name, made))
    return True


def _write(disk, result, fd, data):
    item = disk.items.get(os.fstat(fd).st_ino)
    if not isinstance(item, File):
        return False
    item.data += bytes(data)[:result]
    return True


def _fsync(disk, result, fd):
    item = disk.items.get(os.fstat(fd).st_ino)
    if isinstance(item, File):
        item.durable = bytes(item.data)
    elif isinstance(item, Dir):
        item.durable, item.pending = item.names(), []
    return item is not None


def _link(disk, result, source, name, *, src_dir_fd, dst_dir_fd, follow_symlinks=True):
    item = _dir(disk, src_dir_fd).names()[source]
    _dir(disk, dst_dir_fd).pending.append((name, item))


def _rename(disk, result, source, name, *, src_dir_fd, dst_dir_fd):
    item = _dir(disk, src_dir_fd).names()[source]
    _dir(disk, dst_dir_fd).pending.append((name, item))
    _dir(disk, src_dir_fd).pending.append((source, None))


def _gone(disk, result, name, *, dir_fd=None):
    above = _dir(disk, dir_fd)
    if above is None:
        return False
    above.pending.append((name, None))
    return True


_TELL = {
    "mkdir": _mkdir,
    "open": _open,
    "write": _write,
    "fsync": _fsync,
    "link": _link,
    "rename": _rename,
    "unlink": _gone,
    "rmdir": _gone,
}
