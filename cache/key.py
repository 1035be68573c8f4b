"""Keys: labelled entries whose canonical text is hashed, stored and can be compared by people.

Text grammar, hashed as UTF-8 (it is pure ASCII):

    text  = "vcc-key 1" LF *entry
    entry = label " = " value LF          ; sorted by label, each label once
    label = [A-Za-z_] [A-Za-z0-9_.:/-]*   ; at most 200 characters
    value = JSON string with every non-ASCII character escaped
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from vcc.cache.digest import Digest
from vcc.cache.errors import UsageError

HEADER = "vcc-key 1"
Pairs = tuple[tuple[str, str], ...]

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,199}\Z")
# A place on one machine must never decide whether another machine hits.
_PATH = re.compile(r"(?:/|~|file:|[A-Za-z]:[\\/])")


@dataclass(frozen=True, slots=True)
class Difference:
    """One label on which two keys disagree; None means that the label is absent there."""

    label: str
    found: str | None
    wanted: str | None

    def __str__(self) -> str:
        return f"{self.label}: found {_shown(self.found)}, wanted {_shown(self.wanted)}"


@dataclass(frozen=True, slots=True)
class Key:
    """Labelled entries, kept sorted; equal entries in any order are the same key.

    Args:
        entries: (label, value) pairs. Values are text; see `canonical_value` for the rest.

    Raises:
        UsageError: a label is malformed or repeated, or a value is a path or not clean text.
    """

    entries: Pairs

    def __post_init__(self) -> None:
        ordered = tuple(sorted((label, value) for label, value in self.entries))
        for label, value in ordered:
            _check_entry(label, value)
        for (label, _), (after, _) in pairwise(ordered):
            if label == after:
                raise UsageError(f"key label {label!r} occurs twice")
        object.__setattr__(self, "entries", ordered)

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Key:
        """A key from a mapping of label to value."""
        return cls(tuple(fields.items()))

    @classmethod
    def parse(cls, text: str) -> Key:
        """The inverse of `text`.

        Raises:
            UsageError: the text is not the canonical text of a key.
        """
        try:
            head, *lines = text.split("\n")
            pairs = [line.split(" = ", 1) for line in lines if line]
            key = cls(tuple((label, json.loads(value)) for label, value in pairs))
        except (ValueError, RecursionError) as error:
            raise UsageError("this is not the text of a key", str(error)) from error
        if head != HEADER or key.text != text:
            raise UsageError("this is not the text of a key", "it is not in canonical form")
        return key

    @property
    def text(self) -> str:
        """The canonical text. Different keys have different texts."""
        lines = [f"{label} = {json.dumps(value)}\n" for label, value in self.entries]
        return HEADER + "\n" + "".join(lines)

    @property
    def digest(self) -> Digest:
        """SHA-256 of the canonical text."""
        return Digest.of(self.text.encode("ascii"))

    def diff(self, other: Key) -> tuple[Difference, ...]:
        """Where `other` (found) differs from this key (wanted), sorted by label."""
        wanted, found = dict(self.entries), dict(other.entries)
        return tuple(
            Difference(label, found.get(label), wanted.get(label))
            for label in sorted(wanted.keys() | found.keys())
            if wanted.get(label) != found.get(label)
        )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.entries)


def canonical_value(value: object) -> str:
    """Key text of a JSON-like value: sorted, compact, ASCII. Text stays itself, sets are sorted.

    Raises:
        UsageError: the value has no canonical form (NaN, an object).
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_sorted_set
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{value!r} has no canonical form", str(error)) from error


def _sorted_set(value: object) -> list[object]:
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=lambda item: json.dumps(item, sort_keys=True))
    raise TypeError(f"{type(value).__name__} is not JSON")


def _check_entry(label: object, value: object) -> None:
    if not isinstance(label, str) or not _LABEL.match(label):
        raise UsageError(f"{str(label)[:80]!r} is not a key label")
    if not isinstance(value, str):
        raise UsageError(
            f"the value of key label {label!r} is {type(value).__name__}, not text",
            hint="Pass it through canonical_value()",
        )
    if not is_clean(value):
        raise UsageError(
            f"the value of key label {label!r} is not clean text",
            "it has a NUL, a lone surrogate, or is not in Unicode form NFC",
        )
    if _PATH.match(value):
        raise UsageError(
            f"the value of key label {label!r} is a path ({value[:80]!r})",
            "keys hold nothing that depends on where things lie",
        )


def is_clean(text: str) -> bool:
    """Whether `text` is NFC, without NUL and without lone surrogates."""
    if text.isascii():
        return "\0" not in text
    surrogate = any("\ud800" <= char <= "\udfff" for char in text)
    return "\0" not in text and not surrogate and unicodedata.is_normalized("NFC", text)


def cleaned(text: str) -> str:
    """Text for people made clean: NFC, with what cannot be stored shown as a question mark."""
    shown = "".join("?" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in text)
    return unicodedata.normalize("NFC", shown)


def _shown(value: str | None) -> str:
    return "nothing" if value is None else repr(value if len(value) <= 64 else value[:61] + "...")
