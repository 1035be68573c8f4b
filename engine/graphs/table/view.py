"""What the checks of a node table share: its records, texts, and how far ranges have come."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from vcc.engine.graphs.table.exprs import Exprs
from vcc.engine.graphs.table.frame import Frame, refuse
from vcc.engine.graphs.table.layout import MOST_NAME, Section

Record = tuple[Any, ...]

Need = Callable[[bool, str], None]
"""Refuses the record at hand, with this reason, unless the condition holds."""


class View:
    """A table under check; expressions have passed already."""

    __slots__ = ("_ends", "_last", "_names", "_texts", "exprs", "frame")

    def __init__(self, frame: Frame, exprs: Exprs) -> None:
        self.frame, self.exprs = frame, exprs
        self._names: set[tuple[Section, Any]] = set()
        self._texts: dict[tuple[int, int], str | None] = {}
        self._ends = dict.fromkeys(Section, 0)
        self._last: tuple[int, ...] = ()

    def records(self, section: Section) -> Any:
        """The records of a section."""
        return self.frame.records[section]

    def need(self, section: Section, index: int) -> Need:
        """The `Need` of one record."""
        return partial(_need, section, index)

    def fresh(self, section: Section, name: Any) -> bool:
        """Whether no record of the section has had this name before."""
        known = (section, name) in self._names
        self._names.add((section, name))
        return not known

    def text(self, offset: int, length: int) -> str | None:
        """A text of the strings section, or None where it is none."""
        if (offset, length) not in self._texts:
            self._texts[offset, length] = _text(self.frame.strings, offset, length)
        return self._texts[offset, length]

    def follows(self, section: Section, first: int, count: int) -> bool:
        """Whether these records come right after those of the owner before; notes their end."""
        right = first == self._ends[section]
        self._ends[section] += count
        return right

    def rises(self, place: tuple[int, ...]) -> bool:
        """Whether `place` is behind the one of the last call."""
        before, self._last = self._last, place
        return before < place

    def check_all_owned(self, section: Section, count: int) -> None:
        """Refuse records of a section that no owner has, or an owner of more than there are."""
        if self._ends[section] != count:
            refuse(section, None, f"{count} records, {self._ends[section]} are used")


def _need(section: Section, index: int, holds: bool, why: str) -> None:
    if not holds:
        refuse(section, index, why)


def _text(strings: bytes, offset: int, length: int) -> str | None:
    if length > MOST_NAME or offset + length > len(strings):
        return None
    try:
        text = strings[offset : offset + length].decode()
    except UnicodeDecodeError:
        return None
    return None if any(c < " " or c == "\x7f" for c in text) else text
