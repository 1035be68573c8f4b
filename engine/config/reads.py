"""Which environment variables are read while something runs, and by whom.

Reads through `os.environ` and `os.getenv` are seen, in forked processes too, as the object itself
records them. Copies of the whole environment, as for a child process, are no reads; what C code
asks of `getenv` is not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

OWN = "vcc"


@dataclass(frozen=True, slots=True)
class Reads:
    """Names of variables with the packages that read them."""

    found: dict[str, set[str]] = field(default_factory=dict)

    def add(self, name: str, readers: Iterable[str]) -> None:
        """Note that `readers` asked for `name`."""
        self.found.setdefault(name, set()).update(readers)

    def merge(self, other: Mapping[str, Iterable[str]]) -> None:
        """Take over what another process read."""
        for name, readers in other.items():
            self.add(name, readers)

    def as_dict(self) -> dict[str, list[str]]:
        """As plain values, sorted."""
        return {name: sorted(readers) for name, readers in sorted(self.found.items())}

    def by(self, packages: Iterable[str]) -> tuple[str, ...]:
        """The names that one of these packages read, sorted."""
        wanted = frozenset(packages)
        return tuple(sorted(name for name, readers in self.found.items() if readers & wanted))


@contextmanager
def recorded(environ: Any, reads: Reads) -> Iterator[None]:
    """Note every read of a variable until the body ends; reads of vcc itself are left out.

    Args:
        environ: `os.environ`; its class is exchanged, so that everybody who holds it is seen.
        reads: filled.
    """
    kind = type(environ)
    environ.__class__ = _recording(kind, reads)
    try:
        yield
    finally:
        environ.__class__ = kind


def _recording(kind: type, reads: Reads) -> type:
    """A class of the same layout that notes reads by name."""
    copying: list[tuple[int, int]] = []

    class Recording(kind):  # type: ignore[misc]
        """The environment, with a note of who asks for what."""

        def __getitem__(self, name: str) -> Any:
            frame = sys._getframe(1)
            if isinstance(name, str) and _place(frame) not in copying:
                reader = _reader(frame)
                if reader != OWN:
                    reads.add(name, (reader,))
            return super().__getitem__(name)

        def keys(self) -> Any:
            # `dict(environ)` asks for the names and then for each value in one instruction.
            copying[:] = [_place(sys._getframe(1))]
            return super().keys()

        def items(self) -> Any:
            return dict(self).items()

        def values(self) -> Any:
            return dict(self).values()

    return Recording


def _place(frame: FrameType) -> tuple[int, int]:
    """Which call, and which instruction in it."""
    return id(frame), frame.f_lasti


def _reader(frame: FrameType | None) -> str:
    """The package that asks; a module of the standard library asks for whoever called it."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package and package not in sys.stdlib_module_names:
            return package
        frame = frame.f_back
    return "python"
