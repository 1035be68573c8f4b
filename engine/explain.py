"""Why a look-up missed, or what it hits: nearest entries, the factors that differ, what to do.

No torch, nothing is built and no remote is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vcc.cache.errors import VccError
from vcc.cache.explain import Near, explain_miss
from vcc.cache.factors import HOST, factor_of, ranked
from vcc.cache.key import Difference, Key
from vcc.cache.notes import LastLookup
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.compile.keys import BuildKeys, keys_here, known_before
from vcc.engine.hints import hint_of
from vcc.engine.matching import GRAPH_MODE, SIZES, answers, is_planned
from vcc.engine.request import Settled, look_up
from vcc.engine.runtime.host import refusal

DIGEST = "model.digest"


@dataclass(frozen=True, slots=True)
class Cause:
    """One factor that differs.

    Attributes:
        label, group: what it is.
        found, wanted: the artifact's value and the look-up's; None where it has none.
        hint: what makes the artifact answer, or ends the difference.
    """

    label: str
    group: str
    found: str | None
    wanted: str | None
    hint: str

    @classmethod
    def of(cls, one: Difference, entry: Entry) -> Cause:
        """A difference of an entry with its hint."""
        group = factor_of(one.label).group
        return cls(one.label, group, one.found, one.wanted, hint_of(one, entry.fields))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A near entry and why it does not answer; heaviest cause first."""

    entry: Entry
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of `vcc explain`.

    Attributes:
        model: as the user named it.
        why: the reason in one line; empty on a hit.
        hit: the artifact that answers; None on a miss.
        nearest: entries that do not answer, nearest first; empty on a hit.
        rebuild: on a hit, why a build here would not take the artifact's code.
        when: seconds since 1970 of a look-up that was noted; 0 for a hypothetical one.
    """

    model: str
    why: str
    hit: Entry | None = None
    nearest: tuple[Candidate, ...] = ()
    rebuild: tuple[Cause, ...] = ()
    when: int = 0


def explain(settled: Settled, store: Store) -> Explanation:
    """Explain the look-up that a run of this request would make.

    Raises:
        StorageError, Unsafe: the store cannot be read.
    """
    base, stated = look_up(settled)
    identity = dict(settled.request.source.model_key())
    asked = _Asked(settled.request.source.name, base, stated, identity)
    found = _explained(asked, store)
    if found.hit is None:
        return found
    return replace(found, rebuild=_rebuild(store, found.hit, keys_here(settled)))


def explain_noted(noted: LastLookup, store: Store) -> Explanation:
    """Explain a look-up that missed earlier against what is stored now; raises as `explain`."""
    asked = _Asked(noted.model, noted.base, noted.wanted, dict(noted.identity))
    found = _explained(asked, store)
    return replace(found, when=noted.when, why=found.why or noted.why)


@dataclass(frozen=True, slots=True)
class _Asked:
    model: str
    base: Key
    stated: Mapping[str, str]
    identity: Mapping[str, str]


def _explained(asked: _Asked, store: Store) -> Explanation:
    entries = tuple(replace(store, remote=None).entries())
    same = [entry for entry in entries if entry.base == asked.base]
    fit = [entry for entry in same if answers(entry, asked.stated)]
    hit = next((entry for entry in fit if refusal(dict(entry.host_rules)) is None), None)
    if hit is not None:
        return Explanation(asked.model, "", hit)
    if fit:
        first = refusal(dict(fit[0].host_rules))
        why = f"not for this host: {first.why}" if first is not None else ""
        near = tuple(Candidate(entry, _host_causes(entry)) for entry in fit[:3])
        return Explanation(asked.model, why, nearest=near)
    miss = explain_miss(asked.base, asked.stated, entries)
    near = tuple(_candidate(asked, store, one) for one in miss.near)
    return Explanation(asked.model, miss.reason.value, nearest=near)


def _candidate(asked: _Asked, store: Store, near: Near) -> Candidate:
    """With the parts of the model's digest in its place, where the manifest has them."""
    found = [one for one in near.differences if not _played(near.entry, one)]
    labels = {one.label for one in found}
    if DIGEST in labels:
        parts = _parts_of_model(asked.identity, store, near.entry)
        found = [one for one in found if one.label != DIGEST or not parts] + list(parts)
    causes = tuple(Cause.of(one, near.entry) for one in ranked(found))
    return Candidate(near.entry, causes + _host_causes(near.entry))


def _played(entry: Entry, one: Difference) -> bool:
    """Whether a boot decides this, so that it keeps no artifact from answering."""
    return is_planned(entry) and one.label in (GRAPH_MODE, SIZES)


def _parts_of_model(
    wanted: Mapping[str, str], store: Store, entry: Entry
) -> tuple[Difference, ...]:
    info = _manifest_info(store, entry).get("identity")
    if not isinstance(info, dict) or not wanted:
        return ()
    found = {str(label): str(value) for label, value in info.items()}
    return Key.of(wanted).diff(Key.of(found))


def _manifest_info(store: Store, entry: Entry) -> Mapping[str, object]:
    try:
        return store.load(entry).manifest.info
    except VccError:  # an explanation does without
        return {}


def _host_causes(entry: Entry) -> tuple[Cause, ...]:
    refused = refusal(dict(entry.host_rules))
    if refused is None:
        return ()
    here = refused.found or None
    return (Cause.of(Difference(HOST + refused.rule, refused.wanted, here), entry),)


def _rebuild(store: Store, entry: Entry, keys: BuildKeys) -> tuple[Cause, ...]:
    """Where a build of the request here has another code key than the artifact."""
    try:
        manifest = store.load(entry).manifest
    except VccError:
        return ()
    found = Key.of(known_before(manifest.code_key))
    return tuple(Cause.of(one, entry) for one in ranked(Key.of(keys.code).diff(found)))
