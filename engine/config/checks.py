"""Checks of single configuration values; each refusal says what, why and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from vcc.cache.errors import ConfigError


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known one, and all of them.

    >>> suggestion("ful", ["full", "none"])
    'did you mean "full"? known: full, none'
    """
    names = list(known)
    lower = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    known_text = f"known: {', '.join(names)}"
    return f'did you mean "{lower[close[0]]}"? {known_text}' if close else known_text


MOST = 2**31 - 1
"""Largest count: the indices of a step have 32 bits."""


def check_count(field: str, value: object, *, required: bool = False) -> None:
    """Refuse anything but an int from 1 to `MOST`; None passes unless it is required.

    Raises:
        ConfigError: wrong type, zero, negative, or too large.
    """
    if value is None and not required:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(
            f"{field} must be a whole number", f"got {value!r} ({type(value).__name__})"
        )
    if value <= 0:
        raise ConfigError(
            f"{field} must be at least 1", f"got {value}", "leave it out for a default"
        )
    if value > MOST:
        shown = f"got {value}" if value < 10**20 else "got a number of more than 20 digits"
        raise ConfigError(
            f"{field} is too large", f"{shown}: indices have 32 bits", f"use at most {MOST}"
        )


def check_sizes(field: str, values: object) -> None:
    """Refuse anything but None or a tuple of positive ints (an empty tuple is allowed here).

    Raises:
        ConfigError: not a tuple, or an element that is not a positive int.
    """
    if values is None:
        return
    if not isinstance(values, tuple):
        raise ConfigError(
            f"{field} must be a list of whole numbers",
            f"got {values!r} ({type(values).__name__})",
            f"write for example {field}=(1, 2, 4, 8)",
        )
    for position, value in enumerate(values):
        check_count(f"{field}[{position}]", value, required=True)


def check_texts(field: str, values: object) -> None:
    """Refuse anything but None or a tuple of non-empty strings.

    Raises:
        ConfigError: not a tuple of strings.
    """
    if values is None:
        return
    if not isinstance(values, tuple) or not all(isinstance(v, str) and v for v in values):
        raise ConfigError(f"{field} must be a list of names", f"got {values!r}")
    for value in values:
        check_printable(field, value)


def check_printable(field: str, text: str) -> None:
    """Refuse control characters and lone surrogates, which keys and manifests cannot hold.

    Raises:
        ConfigError: the text is not printable.
    """
    if not text.isprintable():
        raise ConfigError(f"{field} must be printable text", f"got {text!r}")


def check_kind(field: str, value: object, kinds: Sequence[type]) -> None:
    """Refuse a value that is neither None nor an instance of one of `kinds` exactly.

    Raises:
        ConfigError: wrong type (a bool never passes for an int).
    """
    if value is None or type(value) in kinds:
        return
    wanted = " or ".join(kind.__name__ for kind in kinds)
    raise ConfigError(f"{field} must be {wanted}", f"got {value!r} ({type(value).__name__})")
