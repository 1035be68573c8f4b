"""How long a build would take, from the builds that the store remembers. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from vcc.cache.errors import VccError
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.request import Settled, request_pairs

MOST_READ = 16
"""Manifests that are read for an estimate."""

_SAME_KIND = ("target.platform", "config.mode")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of a build and what they rest on.

    Attributes:
        seconds: None without history.
        basis: the builds that were looked at, in words.
    """

    seconds: float | None
    basis: str


NO_HISTORY = Estimate(None, "no history: no build of this kind is remembered here")


def estimate(settled: Settled, store: Store) -> Estimate:
    """The time of a cold build: of this model, else of the model nearest in parameters.

    Nothing is scaled: equal layers compile once, so the number of parameters says little of the
    time, and the nearest build is shown as what it is.
    """
    wanted = request_pairs(settled)[0]
    kind = {label: wanted.get(label) for label in _SAME_KIND}
    past = [one for one in store.entries() if one.build_ms and _is_kind(one, kind)]
    own = [one for one in past if one.fields.get("model.digest") == wanted["model.digest"]]
    if own:
        seconds = median(one.build_ms for one in own) / 1000
        return Estimate(seconds, f"{_count(own)} of this model")
    return _of_others(past, store, settled.request.source.parameters)


def _is_kind(entry: Entry, kind: dict[str, str | None]) -> bool:
    fields = entry.fields
    return all(fields.get(label) == value for label, value in kind.items())


def _of_others(past: Sequence[Entry], store: Store, parameters: int) -> Estimate:
    """The other model whose number of parameters is nearest, by ratio."""
    found = [(size, one) for one in past[:MOST_READ] if (size := _parameters(store, one))]
    if not found or not parameters:
        return NO_HISTORY
    size, nearest = min(found, key=lambda pair: abs(math.log(pair[0] / parameters)))
    basis = f"a build of {nearest.title} with {size:,} parameters; this model has {parameters:,}"
    return Estimate(nearest.build_ms / 1000, basis)


def _parameters(store: Store, entry: Entry) -> int:
    try:
        found = store.load(entry).manifest.info.get("parameters")
    except VccError:  # an estimate does without
        return 0
    return found if isinstance(found, int) and found > 0 else 0


def _count(entries: Iterable[Entry]) -> str:
    number = len(tuple(entries))
    return f"{number} build{'s' * (number != 1)}"
