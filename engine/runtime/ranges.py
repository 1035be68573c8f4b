"""Programs of an artifact, each for a range of sizes: read, checked, and chosen by size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.program import BLOB, Program, Symbol
from vcc.engine.graphs.program_check import decode

_NAME = re.compile(re.escape(BLOB) + r"/([1-9][0-9]{0,9})-([1-9][0-9]{0,9})")
"""One spelling for each range, so that two blobs cannot mean the same."""

IsRanged = Callable[[Symbol], bool]
"""Whether a symbol is the size that ranges are about."""


class Ranged(Protocol):
    """Code for the sizes from `low` to `high`, both included."""

    @property
    def low(self) -> int:
        """Smallest size."""

    @property
    def high(self) -> int:
        """Largest size."""


Code = TypeVar("Code", bound=Ranged)


@dataclass(frozen=True, slots=True)
class RangeProgram:
    """The step program of a range; of every size where the artifact has one program."""

    low: int
    high: int
    program: Program


EVERY = (1, 1 << 62)
"""The range of an artifact's only program: what it serves stands in its symbols."""


def read_programs(loaded: Loaded, is_ranged: IsRanged) -> tuple[RangeProgram, ...]:
    """The programs of an artifact, ranges ascending, then exact sizes.

    Args:
        loaded: the artifact.
        is_ranged: picks the size among a program's symbols.

    Raises:
        IntegrityError: a program is refused, its name or its symbols say another range, or sizes
            between the smallest and the largest have no program.
    """
    names = [name for name in loaded.manifest.blobs if name.startswith(f"{BLOB}/")]
    if not names:
        return (RangeProgram(*EVERY, decode(loaded.read(BLOB))),)
    found = [_read(loaded, name, is_ranged) for name in names]
    found.sort(key=lambda one: (one.low == one.high, one.low, one.high))
    _check_whole(found)
    return tuple(found)


def _read(loaded: Loaded, name: str, is_ranged: IsRanged) -> RangeProgram:
    match = _NAME.fullmatch(name)
    if match is None:
        raise IntegrityError(f"blob {name[:60]} names no range of sizes")
    low, high = map(int, match.groups())
    program = decode(loaded.read(name))
    said = [(symbol.low, symbol.high) for symbol in program.symbols if is_ranged(symbol)]
    if said != [(low, high)]:
        raise IntegrityError(f"blob {name[:60]} is a program of other sizes", f"it says {said}")
    return RangeProgram(low, high, program)


def _check_whole(found: Sequence[RangeProgram]) -> None:
    """Every size has a program: each range begins where another one ended."""
    reached = min(one.low for one in found) - 1
    for one in sorted(found, key=lambda one: (one.low, one.high)):
        if one.low > reached + 1:
            raise IntegrityError(
                f"the artifact has no program for sizes {reached + 1} to {one.low - 1}",
                "its ranges leave a gap",
                "rebuild it: vcc compile",
            )
        reached = max(reached, one.high)


def chosen(codes: Sequence[Code], size: int) -> Code:
    """The code for a size: of this size alone before that of a range.

    Raises:
        IntegrityError: there is none.
    """
    fit = [one for one in codes if one.low <= size <= one.high]
    if not fit:
        raise IntegrityError(
            f"the artifact has no code for a size of {size}",
            f"it has {', '.join(f'{one.low} to {one.high}' for one in codes)}",
            "rebuild it: vcc compile",
        )
    return min(fit, key=lambda one: one.high - one.low)
