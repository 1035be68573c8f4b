"""The file of an adapter's matrices, which is read whenever a slot is written: the same, or not.

Only its header is read when an adapter is loaded, and its matrices perhaps much later. A file that
was written, replaced or removed in between holds other matrices than those that were checked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import ModelError
from vcc.engine.models.tensor_info import TensorInfo

Read = Callable[[TensorInfo], bytearray]
"""The bytes of one tensor of the file."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file has another of once it is written or replaced: sizes in bytes, times in ns.

    `touched` is the time of the inode, which a program that sets `written` back cannot keep.
    """

    device: int
    inode: int
    size: int
    written: int
    touched: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileState:
        """The state that `stat` found."""
        times = found.st_mtime_ns, found.st_ctime_ns
        return cls(found.st_dev, found.st_ino, found.st_size, *times)


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """A file and the state in which its header was read."""

    path: Path
    state: FileState

    @classmethod
    def seen(cls, path: Path) -> WeightsFile:
        """The file as it is now; to be taken before its header is read.

        Raises:
            ModelError: it cannot be read.
        """
        try:
            return cls(path, FileState.of(path.stat()))
        except OSError as error:
            raise ModelError(f"cannot read {path}", str(error.strerror)) from error

    @contextmanager
    def reading(self) -> Iterator[Read]:
        """Read tensors in the body. Never a mapping: one of a file that is cut ends the process.

        Raises:
            ModelError: the file cannot be read, or is not as it was, before the body or after it.
        """
        try:  # without waiting: a pipe in its place has no writer
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise self._changed(f"it cannot be read any more: {error.strerror}") from error
        try:
            self._check(handle)
            yield lambda info: self._bytes(handle, info)
            self._check(handle)
        finally:
            os.close(handle)

    def _check(self, handle: int) -> None:
        if FileState.of(os.fstat(handle)) != self.state:
            raise self._changed("it was written or replaced after the adapter was loaded")

    def _bytes(self, handle: int, info: TensorInfo) -> bytearray:
        data, at = bytearray(info.end - info.start), 0
        view = memoryview(data)
        try:
            while at < len(data) and (count := os.preadv(handle, [view[at:]], info.start + at)):
                at += count
        except OSError as error:
            raise ModelError(f"cannot read {self.path}", str(error.strerror)) from error
        if at < len(data):
            raise self._changed("it was cut after the adapter was loaded")
        return data

    def _changed(self, why: str) -> ModelError:
        return ModelError(
            f"{self.path} is not the file that was loaded",
            why,
            "unload the adapter and load it again (with vcc run: start it again), "
            "and put other matrices into a directory of their own",
        )
