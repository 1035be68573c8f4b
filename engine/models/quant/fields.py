"""Typed reads of a quantisation config, with errors that name the field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vcc.cache.errors import ModelError

HINT = "use another checkpoint of the model: docs/quantisation.md lists what is supported"
MOST_NAMES, MOST_EXPRESSIONS, LONGEST_NAME = 100_000, 1_000, 500
"""Expressions are tried on the name of each module, names are looked up."""


def refused(what: str, why: str = "") -> ModelError:
    """The error of a quantisation that is not supported."""
    return ModelError(what, why, HINT)


def only(place: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse fields that nobody here knows, unless they say nothing.

    Raises:
        ModelError: with the first of them.
    """
    for name, value in given.items():
        if name not in known and value not in (None, {}, [], False):
            raise refused(
                f"{place}.{name:.60} is not supported", f"it is {value!r:.60}, its meaning unknown"
            )


def must_be(place: str, given: Mapping[str, Any], name: str, *allowed: Any) -> Any:
    """A field that has one of these values; absent means the first of them.

    Raises:
        ModelError: it has another.
    """
    value = given.get(name, allowed[0])
    # 1 == True: a number is no answer to a yes or no.
    if not any(value == one and type(value) is type(one) for one in allowed):
        listed = " or ".join(map(repr, allowed))
        raise refused(f"{place}.{name} {value!r:.40} is not supported", f"supported: {listed}")
    return value


def names(place: str, value: Any) -> tuple[str, ...]:
    """A list of names; null and absent mean none.

    Raises:
        ModelError: it is something else.
    """
    found = [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise refused(f"{place} is no list of names", f"it is {found!r:.60}")
    expressions = sum(one.startswith("re:") for one in found)
    for count, most, what in (
        (len(found), MOST_NAMES, "names"),
        (expressions, MOST_EXPRESSIONS, "regular expressions"),
        (max(map(len, found), default=0), LONGEST_NAME, "characters in a name"),
    ):
        if count > most:
            raise refused(f"{place} is too long", f"it has {count} {what}, at most {most}")
    return tuple(found)


def mapping(place: str, value: Any) -> Mapping[str, Any]:
    """An object.

    Raises:
        ModelError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise refused(f"{place} is no object", f"it is {value!r:.60}")
    return value
