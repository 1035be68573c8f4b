"""Where the keys of a TOML text stand, so that a mistake is named by line and column.

The text was read by a TOML parser before, so that nothing here has to be refused: only strings,
comments and brackets need care to be passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""A key by the keys and list positions that lead to it: ("build", 0, "dtype", 1)."""

DEEPEST = 64

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PLAIN = re.compile(r"[^,\]}\n#]*")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\])*"'),
    re.compile(r"'[^']*'"),
)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line and a column, both from 1; columns count characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


def places(text: str) -> Mapping[Path, Place]:
    """The place of every table, key and element of a list in a valid TOML text.

    A table that is opened several times has the place of the first.

    Raises:
        RecursionError: lists or tables inside each other, deeper than anybody writes them.
    """
    scan = _Scan(text)
    scan.document()
    return scan.found


def place_of(text: str, offset: int) -> Place:
    """The place of a character of a text."""
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - before.rfind("\n"))


class _Scan:
    def __init__(self, text: str) -> None:
        self.found: dict[Path, Place] = {}
        self._text, self._at = text, 0
        self._last: dict[Path, int] = {}  # arrays of tables: the number of the last one

    def document(self) -> None:
        table: Path = ()
        while self._skip():
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table, 0)

    def _header(self) -> Path:
        start, many = self._at, self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        keys = self._keys()
        self._at = self._text.index("]]" if many else "]", self._at) + (2 if many else 1)
        path = (*self._resolved(keys[:-1]), keys[-1])
        if not many:
            path = self._resolved((keys[-1],), path[:-1])
        else:
            self._last[path] = self._last.get(path, -1) + 1
            path = (*path, self._last[path])
        self._note(path, start)
        return path

    def _resolved(self, keys: tuple[str, ...], path: Path = ()) -> Path:
        """Keys of a header from the top: of an array of tables they mean the last one."""
        for key in keys:
            path = (*path, key)
            if path in self._last:
                path = (*path, self._last[path])
        return path

    def _pair(self, table: Path, depth: int) -> None:
        start = self._at
        keys = self._keys()
        path = table
        for key in keys:
            path = (*path, key)
            self._note(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._value(path, depth)

    def _keys(self) -> tuple[str, ...]:
        keys = [self._key()]
        while self._skip() and self._text[self._at] == ".":
            self._at += 1
            keys.append(self._key())
        return tuple(keys)

    def _key(self) -> str:
        self._skip()
        bare = _BARE.match(self._text, self._at)
        if bare is not None:
            self._at = bare.end()
            return bare[0]
        return self._string()[1:-1]

    def _value(self, path: Path, depth: int) -> None:
        if depth > DEEPEST:
            raise RecursionError(f"values inside each other, over {DEEPEST} deep")
        self._skip()
        first = self._text[self._at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._list(path, depth + 1)
        elif first == "{":
            self._table(path, depth + 1)
        else:
            plain = _PLAIN.match(self._text, self._at)
            self._at = self._at if plain is None else plain.end()

    def _list(self, path: Path, depth: int) -> None:
        self._at += 1
        number = 0
        while self._skip() and self._text[self._at] != "]":
            self._note((*path, number), self._at)
            self._value((*path, number), depth)
            self._comma()
            number += 1
        self._at += 1

    def _table(self, path: Path, depth: int) -> None:
        self._at += 1
        while self._skip() and self._text[self._at] != "}":
            self._pair(path, depth)
            self._comma()
        self._at += 1

    def _comma(self) -> None:
        if self._skip() and self._text[self._at] == ",":
            self._at += 1

    def _string(self) -> str:
        found = next(filter(None, (one.match(self._text, self._at) for one in _STRINGS)))
        self._at = found.end()
        return found[0]

    def _skip(self) -> bool:
        """Pass over white space and comments; whether anything is left."""
        space = _SPACE.match(self._text, self._at)
        self._at = self._at if space is None else space.end()
        return self._at < len(self._text)

    def _note(self, path: Path, offset: int) -> None:
        self.found.setdefault(path, place_of(self._text, offset))
