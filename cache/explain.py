"""Why a look-up missed: as a value, so that a program can act on it and a person can read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from vcc.cache.key import Difference, Key
from vcc.cache.request import Entry


class Reason(Enum):
    """Why no entry answered."""

    EMPTY = "the store is empty"
    NO_MODEL = "no artifact for this model"
    FIELDS = "artifacts of this model were built with other settings"
    HOST = "artifacts answer the request but cannot be used on this host"


@dataclass(frozen=True, slots=True)
class Miss:
    """A look-up without an answer.

    Args:
        reason: what kind of miss it is.
        nearest: the entry that differs least, newest first among equals; None in an empty store.
        differences: on which labels it differs (found: the entry, wanted: the look-up).
    """

    reason: Reason
    nearest: Entry | None
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        lines = "; ".join(str(difference) for difference in self.differences[:5])
        return f"{self.reason.value}: nearest {lines}" if lines else self.reason.value


def explain_miss(base: Key, wanted: Mapping[str, str], have: Iterable[Entry]) -> Miss:
    """The reason why none of `have` answers the look-up.

    Args:
        base: the part of the request that is always stated.
        wanted: the open fields that were stated.
        have: entries of the whole store, newest first.
    """
    entries = tuple(have)
    if not entries:
        return Miss(Reason.EMPTY, None, ())
    same = tuple(entry for entry in entries if entry.base == base)
    if not same:
        nearest = min(entries, key=lambda entry: len(base.diff(entry.base)))
        return Miss(Reason.NO_MODEL, nearest, base.diff(nearest.base))
    nearest = min(same, key=lambda entry: len(entry.differences(wanted)))
    differences = nearest.differences(wanted)
    return Miss(Reason.FIELDS if differences else Reason.HOST, nearest, differences)
