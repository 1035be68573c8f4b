"""Filters: `size>1GB` chooses artifacts by what is known of them.

    filter = field op value            ; blanks around the three are free
    field  = one of FIELDS
    op     = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"
    value  = size (20GB, 512MiB) | duration (90s, 15m, 12h, 30d, 8w) | count | yes, no | text

`~` asks whether text has the value in it, whatever the case. An id is compared by its beginning.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from vcc.cache.care.items import Item
from vcc.cache.errors import ConfigError, UsageError
from vcc.cache.settings import parse_size

Value = float | str | bool
MAX_LENGTH = 1000
MIN_PREFIX = 6
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
DURATIONS = "such as 90s, 30m (minutes), 12h, 30d or 8w"
"""For people, where a duration cannot be read."""

_OP = re.compile(r"[=!<>~]+")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?\Z")
_ORDER: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "~": lambda found, value: str(value).lower() in str(found).lower(),
}
_BEGIN: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": lambda found, value: str(found).startswith(str(value).lower()),
    "!=": lambda found, value: not str(found).startswith(str(value).lower()),
}
_EQUAL: Mapping[str, Callable[[Value, Value], bool]] = {"=": operator.eq, "!=": operator.ne}


@dataclass(frozen=True, slots=True)
class Field:
    """One field that filters know.

    Args:
        read: value text to value; raises ValueError with what is expected.
        ops: what it may be compared by.
        of: the field of an item, given the versions that built it.
        means: for people.
    """

    read: Callable[[str], Value]
    ops: Mapping[str, Callable[[Value, Value], bool]]
    of: Callable[[Item, Mapping[str, str]], Value]
    means: str


class FilterError(UsageError):
    """A filter that cannot be read; `why` has its column."""

    id = "FILTER"


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that was read: `field op value`, with its text for messages."""

    text: str
    field: str
    op: str
    value: Value

    @property
    def needs_builder(self) -> bool:
        """Whether the manifest must be read for it: versions stand in no ref."""
        return self.field.startswith(BUILDER)

    def holds(self, item: Item, builder: Mapping[str, str]) -> bool:
        """Whether an artifact passes.

        Args:
            item: the artifact.
            builder: the versions that built it; may be empty unless `needs_builder`.
        """
        field = FIELDS[self.field]
        return field.ops[self.op](field.of(item, builder), self.value)


def parse_filter(text: str) -> Filter:
    """Read a filter.

    Raises:
        FilterError: with the column of what is wrong, and what would be right.
    """
    if len(text) > MAX_LENGTH or not text.isprintable():
        raise FilterError("the filter is no filter", "it is too long, or not printable", _HINT)
    found = _OP.search(text)
    if found is None:
        raise _wrong(text, len(text.rstrip()), "an operator is missing", " ".join(_ORDER) + " ~")
    name, op, rest = text[: found.start()].strip(), found.group(), text[found.end() :]
    field = FIELDS.get(name)
    if field is None:
        column = len(text) - len(text.lstrip())
        raise _wrong(text, column, f"there is no field {name!r}", f"fields: {', '.join(FIELDS)}")
    if op not in field.ops:
        known = f"{name} takes {' '.join(field.ops)}"
        raise _wrong(text, found.start(), f"{op} is no operator of {name}", known)
    column = found.end() + len(rest) - len(rest.lstrip())
    if not rest.strip():
        raise _wrong(text, column, "a value is missing", f"such as {name}{op}{field.means}")
    try:
        return Filter(text, name, op, field.read(rest.strip()))
    except (ValueError, ConfigError) as error:
        right = DURATIONS if field.read is parse_duration else field.means
        raise _wrong(text, column, f"{rest.strip()!r} is no value of {name}", right) from error


def matching(
    items: Iterable[Item], filters: Iterable[Filter], builder: Callable[[Item], Mapping[str, str]]
) -> tuple[Item, ...]:
    """The items that pass all filters.

    Args:
        items: what there is.
        filters: all must hold; none is passed by everything.
        builder: reads the versions that built an item; called only where a filter asks for them.
    """
    cheap_first = sorted(filters, key=lambda one: one.needs_builder)

    def passes(item: Item) -> bool:
        return all(
            one.holds(item, builder(item) if one.needs_builder else {}) for one in cheap_first
        )

    return tuple(item for item in items if passes(item))


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `90s`, `15m` or `15min`, `12h`, `30d` or `8w`.

    Raises:
        ValueError: it is none.
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip()
    if not _NUMBER.match(number) or unit not in _SECONDS:
        raise ValueError(text)
    return float(number) * _SECONDS[unit]


def _count(text: str) -> float:
    if not _NUMBER.match(text):
        raise ValueError(text)
    return float(text)


def _yes(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError(text)
    return text.lower() in _YES


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{6,64}", text):
        raise ValueError(text)
    return text


def _size(text: str) -> float:
    return float(parse_size(text, "size"))


def _wrong(text: str, column: int, why: str, hint: str) -> FilterError:
    return FilterError(f"the filter {text!r} is wrong at column {column + 1}", why, hint)


_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")
_HINT = "such as --filter 'size>1GB' --filter 'idle>30d'"
BUILDER = "builder."

FIELDS: Mapping[str, Field] = {
    "size": Field(_size, _ORDER, lambda item, _: float(item.size), "1GB"),
    "age": Field(parse_duration, _ORDER, lambda item, _: item.age, "30d"),
    "idle": Field(parse_duration, _ORDER, lambda item, _: item.idle, "12h"),
    "hits": Field(_count, _ORDER, lambda item, _: float(item.hits), "10"),
    "pinned": Field(_yes, _EQUAL, lambda item, _: item.pinned, "yes or no"),
    "id": Field(_prefix, _BEGIN, lambda item, _: item.artifact, "its first 6 digits or more"),
    "model": Field(str, _TEXT, lambda item, _: item.title, "demo"),
    "dtype": Field(str, _TEXT, lambda item, _: item.shown.get("model.dtype", ""), "bf16"),
    "target": Field(str, _TEXT, lambda item, _: item.shown.get("target", ""), "sm_90"),
    "mode": Field(
        str, _TEXT, lambda item, _: item.shown.get("config.cuda_graph_mode", ""), "piecewise"
    ),
    f"{BUILDER}torch": Field(str, _TEXT, lambda _, builder: builder.get("torch", ""), "2.13"),
}
"""What can be asked; the order is that of the manual."""
