"""The builds of a file as requests: resolved, told apart by key, divided into shards. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vcc.cache.digest import Digest
from vcc.cache.errors import UsageError, VccError
from vcc.cache.key import Key
from vcc.engine.prewarm.matrix import Cell
from vcc.engine.prewarm.problems import BrokenFile, Problem
from vcc.engine.refusals import check_request
from vcc.engine.request import BuildRequest, Settled, check_buildable, request_pairs, settle

_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})\Z")


@dataclass(frozen=True, slots=True)
class Asked:
    """One build.

    Attributes:
        cell: as the file has it.
        settled: with every field decided; None when that failed.
        error: why it failed.
        key: digest of the request; of the name, where there is no request.
    """

    cell: Cell
    settled: Settled | None
    error: VccError | None
    key: Digest


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count`, from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `2/8`; UsageError for anything else."""
        match = _SHARD.match(text)
        if match is None or int(match[1]) > int(match[2]):
            raise UsageError(
                f"--shard {text} is no part of a whole", "", "--shard 1/4 is the first of four"
            )
        return cls(int(match[1]), int(match[2]))

    def has(self, asked: Asked) -> bool:
        """Whether a build is in this part: by its key, so that other builds move nothing."""
        return int(asked.key.hex, 16) % self.count == self.number - 1


WHOLE = Shard(1, 1)


def ask(
    file: str, cells: Iterable[Cell], request: Callable[[Cell], BuildRequest]
) -> tuple[Asked, ...]:
    """Resolve builds; one that cannot be is kept with its error.

    Args:
        file: for messages.
        cells: the builds.
        request: opens the model and reads the options of one.

    Raises:
        BrokenFile: two builds are one and the same.
    """
    found = tuple(_asked(cell, request) for cell in cells)
    _check_apart(file, found)
    return found


def _asked(cell: Cell, request: Callable[[Cell], BuildRequest]) -> Asked:
    try:
        settled = settle(request(cell))
        check_buildable(settled)
        check_request(settled)
    except VccError as error:
        return Asked(cell, None, error, Digest.of(cell.name.encode("utf-8", "replace")))
    return Asked(cell, settled, None, Key.of(request_pairs(settled)[0]).digest)


def _check_apart(file: str, found: Iterable[Asked]) -> None:
    first: dict[Digest, Cell] = {}
    problems = []
    for one in found:
        if one.settled is None:
            continue
        other = first.setdefault(one.key, one.cell)
        if other is not one.cell:
            text = (
                f'"{one.cell.name}" has the same key as "{other.name}" of line {other.line} '
                f"({one.key.short}): they are one build"
            )
            problems.append(Problem(one.cell.line, one.cell.column, text))
    if problems:
        raise BrokenFile(file, problems)
