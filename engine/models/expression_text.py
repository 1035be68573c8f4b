"""The text of a binding expression, which manifests hold, as an expression. Torch-free.

The grammar is in `expressions`. A manifest is not trusted: depth, length and numbers are bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from vcc.cache.errors import IntegrityError
from vcc.engine.models.expressions import (
    NUMBER,
    Binding,
    Cat,
    ChannelsLast,
    Each,
    Flat,
    FromTensor,
    Repeat,
    Rows,
    Stack,
    Tied,
    Transpose,
)

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[a-z_]+|\d{1,18}|[(),:])')
_DEEPEST = 16
_MOST_TOKENS = 100_000
_MOST_REPEATED = 1 << 24
_MOST_NUMBERS = 4096
"""Of `stack(expr, a:b)`, which a text holds once: a short one must not fill memory."""


def parse(text: str) -> Binding:
    """The expression that this text means; the inverse of `str`.

    Raises:
        IntegrityError: the text is not an expression.
    """
    reader = _Reader(_tokens(text), text)
    binding = reader.expression(0)
    if reader.rest:
        raise _broken(text)
    return binding


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(found) > _MOST_TOKENS:
            raise _broken(text)
        found.append(match.group(1))
        at = match.end()
    return found[::-1]


def _broken(text: str) -> IntegrityError:
    return IntegrityError(
        "a weight binding cannot be read",
        f"in {text[:80]!r}",
        "build the artifact anew: vcc compile",
    )


@dataclass(slots=True)
class _Reader:
    """Recursive descent over reversed tokens."""

    rest: list[str]
    text: str
    numbered: bool = False

    def expression(self, depth: int) -> Binding:
        """One expression."""
        make = _FORMS.get(self._next())
        if make is None or depth > _DEEPEST:
            raise _broken(self.text)
        self._expect("(")
        binding = make(self, depth + 1)
        self._expect(")")
        return binding

    def name(self) -> str:
        """A JSON string."""
        token = self._next()
        try:
            value = json.loads(token) if token.startswith('"') else None
        except ValueError:
            value = None
        if not isinstance(value, str):
            raise _broken(self.text)
        return value

    def parts(self, depth: int) -> tuple[Binding, ...]:
        """Expressions separated by commas, at least one."""
        found = [self.expression(depth)]
        while self.rest and self.rest[-1] == ",":
            self._next()
            found.append(self.expression(depth))
        return tuple(found)

    def rows(self, depth: int) -> Rows:
        """`expr, a:b` with a not above b."""
        source = self.expression(depth)
        self._expect(",")
        return Rows(source, *self._range())

    def repeat(self, depth: int) -> Repeat:
        """`expr, n` with n from 1 to what the rows of a weight may be."""
        source = self.expression(depth)
        self._expect(",")
        count = self._number()
        if not 1 <= count <= _MOST_REPEATED:
            raise _broken(self.text)
        return Repeat(source, count)

    def stack(self, depth: int) -> Stack | Each:
        """Expressions, or one and the range of numbers that it is for."""
        first = self.expression(depth)
        if len(self.rest) > 1 and self.rest[-1] == "," and self.rest[-2].isdigit():
            self._next()
            start, stop = self._range()
            if not 0 < stop - start <= _MOST_NUMBERS or self.numbered or NUMBER not in str(first):
                raise _broken(self.text)
            self.numbered = True
            return Each(first, start, stop)
        more = self.rest and self.rest[-1] == ","
        if more:
            self._next()
        return Stack((first, *(self.parts(depth) if more else ())))

    def channels_last(self, depth: int) -> ChannelsLast:
        """An expression that no other one holds."""
        if depth != 1:
            raise _broken(self.text)
        return ChannelsLast(self.expression(depth))

    def _range(self) -> tuple[int, int]:
        start = self._number()
        self._expect(":")
        stop = self._number()
        if start > stop:
            raise _broken(self.text)
        return start, stop

    def _next(self) -> str:
        if not self.rest:
            raise _broken(self.text)
        return self.rest.pop()

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _broken(self.text)

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            raise _broken(self.text)
        return int(token)


_FORMS: dict[str, Callable[[_Reader, int], Binding]] = {
    "tensor": lambda reader, _: FromTensor(reader.name()),
    "tied": lambda reader, _: Tied(reader.name()),
    "rows": _Reader.rows,
    "cat": lambda reader, depth: Cat(reader.parts(depth)),
    "stack": _Reader.stack,
    "transpose": lambda reader, depth: Transpose(reader.expression(depth)),
    "repeat": _Reader.repeat,
    "flat": lambda reader, depth: Flat(reader.expression(depth)),
    "channels_last": _Reader.channels_last,
}
