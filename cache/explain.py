"""Why a look-up missed: as a value, so that a program can act on it and a person can read it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from vcc.cache.factors import distance, ranked
from vcc.cache.key import Difference, Key
from vcc.cache.request import Entry

NEAREST = 3
"""Entries that an explanation shows."""


class Reason(Enum):
    """Why no entry answered."""

    EMPTY = "the store is empty"
    NO_MODEL = "no artifact for this model"
    OTHER_FORM = "artifacts of this model were built in another form"
    FIELDS = "artifacts of this model were built with other settings"
    HOST = "artifacts answer the request but cannot be used on this host"


@dataclass(frozen=True, slots=True)
class Near:
    """An entry that does not answer, and why.

    Args:
        entry: the entry.
        differences: found: the entry, wanted: the look-up; heaviest factor first.
    """

    entry: Entry
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """A look-up without an answer.

    Args:
        reason: what kind of miss it is.
        near: the entries that differ least, nearest first, newest first among equals.
    """

    reason: Reason
    near: tuple[Near, ...]

    @property
    def nearest(self) -> Entry | None:
        """The entry that differs least; None in an empty store."""
        return self.near[0].entry if self.near else None

    @property
    def differences(self) -> tuple[Difference, ...]:
        """On which labels the nearest entry differs."""
        return self.near[0].differences if self.near else ()

    def __str__(self) -> str:
        lines = "; ".join(str(difference) for difference in self.differences[:5])
        return f"{self.reason.value}: nearest {lines}" if lines else self.reason.value


def explain_miss(
    base: Key, wanted: Mapping[str, str], have: Iterable[Entry], most: int = NEAREST
) -> Miss:
    """The reason why none of `have` answers the look-up.

    Args:
        base: the part of the request that is always stated.
        wanted: the open fields that were stated.
        have: entries of the whole store, newest first.
        most: entries to name.
    """
    stated = dict(base)
    everything = tuple(have)
    # What shares no label is of another kind, such as the caches of a guest.
    akin = [entry for entry in everything if entry.fields.keys() & stated.keys()]
    pairs = [(entry, differences(entry, stated, wanted)) for entry in akin]
    nearest = heapq.nsmallest(most, pairs, key=lambda pair: distance(pair[1]))
    near = tuple(Near(entry, ranked(found)) for entry, found in nearest)
    if everything and not near:
        return Miss(Reason.NO_MODEL, near)
    return Miss(_reason(near, stated), near)


def differences(
    entry: Entry, base: Mapping[str, str], wanted: Mapping[str, str]
) -> tuple[Difference, ...]:
    """Where an entry does not answer a look-up, in no order.

    Args:
        entry: of any base.
        base: the labels that are always stated; the entry's own must be equal to these.
        wanted: the open fields that were stated.
    """
    fields, open_fields = entry.fields, frozenset(entry.open_fields)
    labels = base.keys() | wanted.keys() | (fields.keys() - open_fields)
    asked = {**wanted, **base}
    return tuple(
        Difference(label, fields.get(label), asked.get(label))
        for label in labels
        if fields.get(label) != asked.get(label)
    )


def _reason(near: tuple[Near, ...], base: Mapping[str, str]) -> Reason:
    if not near:
        return Reason.EMPTY
    labels = {one.label for one in near[0].differences}
    if "model.digest" in labels:
        return Reason.NO_MODEL
    if labels & base.keys():
        return Reason.OTHER_FORM
    return Reason.FIELDS if labels else Reason.HOST
