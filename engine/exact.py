"""Exact answers: artifacts whose full keys are those of a build here. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from vcc.cache.errors import VccError
from vcc.cache.factors import ranked
from vcc.cache.key import Difference, Key
from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.compile.keys import BuildKeys, known_before
from vcc.engine.request import Settled, request_pairs


def inexact(store: Store, entry: Entry, settled: Settled, keys: BuildKeys) -> str:
    """Why an entry is not exactly what a build here would make; empty when it is.

    Args:
        store: where its manifest is.
        entry: answers the request.
        settled: the request, of which every field counts here, also those left open.
        keys: of a build on this machine.
    """
    try:
        manifest = store.load(entry).manifest
    except VccError as error:
        return str(error)
    found = different(manifest, settled, keys)
    if not found:
        return ""
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(map(str, found[:3])) + more


def different(manifest: Manifest, settled: Settled, keys: BuildKeys) -> tuple[Difference, ...]:
    """Where request, code key or plan key differ, each label once, heaviest factor first."""
    plan = dict(manifest.plan_key)
    recorded = {label: plan[label] for label in plan.keys() - keys.plan.keys()}
    pairs: tuple[tuple[Mapping[str, str], Mapping[str, str]], ...] = (
        (request_pairs(settled)[0], dict(manifest.request)),
        (keys.code, known_before(manifest.code_key)),
        ({**keys.plan, **recorded}, plan),
    )
    found = (one for wanted, have in pairs for one in Key.of(wanted).diff(Key.of(have)))
    return ranked({one.label: one for one in found}.values())
