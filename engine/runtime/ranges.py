"""Programs of an artifact, each for a range of sizes: read and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.program import BLOB, Program, Symbol
from vcc.engine.graphs.program_check import decode
from vcc.engine.graphs.range_blobs import Range, range_blobs

IsRanged = Callable[[Symbol], bool]
"""Whether a symbol is the size that ranges are about."""


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
        IntegrityError: a program is refused, its name or its symbols say another range, ranges
            overlap or leave a gap, or are not those that the manifest lists.
    """
    ranges = range_blobs(loaded.manifest, BLOB, "program")
    if not ranges:
        return (RangeProgram(*EVERY, decode(loaded.read(BLOB))),)
    return tuple(_read(loaded, name, sizes, is_ranged) for name, sizes in ranges.items())


def _read(loaded: Loaded, name: str, sizes: Range, is_ranged: IsRanged) -> RangeProgram:
    program = decode(loaded.read(name))
    said = [(symbol.low, symbol.high) for symbol in program.symbols if is_ranged(symbol)]
    if said != [sizes]:
        raise IntegrityError(f"blob {name[:60]} is a program of other sizes", f"it says {said}")
    return RangeProgram(*sizes, program)
