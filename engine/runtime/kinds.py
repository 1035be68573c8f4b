"""Kinds of values that programs give: a wrong one is refused where it is given, not in a step."""

from __future__ import annotations

from collections.abc import Mapping

from vcc.cache.errors import UsageError

Kinds = Mapping[str, tuple[type, str]]
"""By field: what its value is an instance of, and how that is called."""


def check_kinds(owner: object, kinds: Kinds, *, unset: frozenset[str] = frozenset()) -> None:
    """Refuse a field of another kind; True and False, which are whole numbers too, are none.

    Args:
        owner: has the fields.
        kinds: of its fields.
        unset: fields that may be None.

    Raises:
        UsageError: names the field and what it must be.
    """
    for name, (kind, wanted) in kinds.items():
        value = getattr(owner, name)
        if value is None and name in unset:
            continue
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            given = type(value).__name__
            raise UsageError(f"{name} is {value!r:.80}", f"it is a {given}", f"it must be {wanted}")
