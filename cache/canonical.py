"""Canonical JSON with caps: one text per value, and hostile text is refused before it is parsed.

The canonical text is UTF-8, keys sorted, no white space, no escape that is not needed. A reader
encodes again what it decoded and compares: this alone finds repeated keys, other spellings of a
number, byte-order marks and needless escapes.
"""

from __future__ import annotations

import math
import re

import msgspec

from vcc.cache.errors import IntegrityError
from vcc.cache.key import is_clean

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_INT = 1 << 53

# The closing quote is optional so that a match never fails: no backtracking on hostile text.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


class FormatError(IntegrityError):
    """Text that breaks the format: malformed, over a cap, or not canonical."""

    id = "FORMAT"


def encode(value: object, what: str) -> bytes:
    """The canonical text of a JSON-like value.

    Args:
        value: dicts with text keys, lists, tuples, text, integers, finite floats, booleans, None.
        what: what the text is, for messages.

    Raises:
        FormatError: the value breaks a cap or has no canonical text.
    """
    check_value(value, what)
    try:
        data = msgspec.json.encode(value, order="sorted")
    except (TypeError, msgspec.MsgspecError) as error:
        raise FormatError(f"the {what} cannot be written", str(error)) from error
    check_text(data, what)
    return data


def decode(data: bytes, what: str) -> object:
    """The value of a canonical text; size and depth are checked before it is parsed.

    Raises:
        FormatError: the text is over a cap, malformed or not canonical.
    """
    check_text(data, what)
    try:
        value = msgspec.json.decode(data)
        check_value(value, what)
        again = msgspec.json.encode(value, order="sorted")
    except (ValueError, RecursionError) as error:  # msgspec.DecodeError is a ValueError
        raise FormatError(f"the {what} is not JSON", str(error)) from error
    if again != data:
        raise FormatError(f"the {what} is not canonical", _where(data, again))
    return value


def check_text(data: bytes, what: str) -> None:
    """Refuse text over the caps on size and depth, in one linear pass and little memory."""
    if len(data) > MAX_BYTES:
        raise FormatError(f"the {what} is too large", f"{len(data)} bytes, at most {MAX_BYTES}")
    brackets = _STRING.sub(b"", data).translate(_TO_SQUARE, _NO_BRACKET)
    rounds = 0 if b"[" * (MAX_DEPTH + 1) in brackets else MAX_DEPTH  # plain bombs end here
    for _ in range(rounds):  # each round takes away the innermost level
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise FormatError(
            f"the {what} is nested too deeply or not balanced", f"at most {MAX_DEPTH} levels"
        )


def check_value(value: object, what: str, depth: int = 0) -> None:
    """Refuse values outside the caps: large integers, non-finite floats, unclean text."""
    if depth > MAX_DEPTH:
        raise FormatError(f"the {what} is nested too deeply", f"at most {MAX_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not is_clean(key):
                raise FormatError(f"the {what} has an unclean name", repr(key)[:80])
            check_value(item, what, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            check_value(item, what, depth + 1)
    else:
        _check_scalar(value, what)


def _check_scalar(value: object, what: str) -> None:
    if isinstance(value, str):
        good = is_clean(value)
    elif isinstance(value, (bool, type(None))):
        good = True
    elif isinstance(value, int):
        good = abs(value) <= MAX_INT
    else:
        good = isinstance(value, float) and math.isfinite(value)
    if not good:
        raise FormatError(f"the {what} has a value out of bounds", repr(value)[:80])


def _where(data: bytes, again: bytes) -> str:
    pairs = enumerate(zip(data, again, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(data), len(again)))
    return f"byte {at}: {data[at : at + 20]!r} should be {again[at : at + 20]!r}"
