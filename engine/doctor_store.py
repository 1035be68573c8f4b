"""doctor: the store, the file system that it lies on, and who is trusted there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from vcc.cache.errors import VccError
from vcc.cache.extras import install
from vcc.cache.settings import read_settings
from vcc.cache.store import Store
from vcc.cache.trust.overview import Overview, overview
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.policy import PROD, SIGNED
from vcc.engine.findings import Finding
from vcc.engine.probe import Probed, probe

CLOCK_S = 5.0
"""Seconds of difference that nobody needs to hear of."""

_ELSEWHERE = "choose another place: --cache-dir, VCC_CACHE_DIR"


def store_findings(store: Store) -> Iterator[Finding]:
    """What there is to say of a store: its place, locks and clock, lower stores, trust."""
    place = next(one for one in (store.root, *store.root.parents) if one.exists())
    try:
        tuple(store.entries())
        found = probe(place)
    except (OSError, VccError) as error:
        hint = getattr(error, "hint", "") or _ELSEWHERE
        yield Finding("store", "failed", f"{store.root}: {error}", hint)
    else:
        yield from (_place(store, found), _locks(found), _clock(found))
    yield from (_lower(path) for path in store.lower)
    yield _trust(store)


def _place(store: Store, found: Probed) -> Finding:
    links = "" if found.links else ", without hard links"
    kind = found.kind or "an unknown file system"
    return Finding("store", "ok", f"{store.root}, {found.free / 1e9:.0f} GB free on {kind}{links}")


def _locks(found: Probed) -> Finding:
    if not found.locks:
        return Finding("store locks", "ok", "a second process is kept out")
    hint = "nothing but work rests on them: the same thing may be built twice at once"
    return Finding("store locks", "absent", found.locks, hint)


def _clock(found: Probed) -> Finding:
    if abs(found.skew_s) <= CLOCK_S:
        return Finding("store clock", "ok", "the clock of the files is this machine's")
    side = "ahead of" if found.skew_s > 0 else "behind"
    what = f"the clock of the files is {abs(found.skew_s):.0f} s {side} this machine's"
    hint = "set both by NTP: ages of artifacts and times of signatures are told by clocks"
    return Finding("store clock", "absent", what, hint)


def _lower(path: Path) -> Finding:
    name = "lower store"
    try:
        count = len(tuple(replace(Store.open(path), lower=()).entries())) if path.exists() else 0
    except VccError as error:
        return Finding(name, "failed", f"{path}: {error}", error.hint)
    if not path.exists():
        return Finding(name, "absent", f"{path} is not there", "mount it, or leave it out")
    writable = ", writable for this account" if os.access(path, os.W_OK) else ""
    return Finding(name, "ok", f"{path}, {count} artifacts{writable}")


def _trust(store: Store) -> Finding:
    try:
        settings = read_settings()
        found = overview(store.root, settings.policy, TrustPlace.open(settings.trust_dir))
    except (OSError, VccError) as error:
        return Finding("trust", "failed", str(error), getattr(error, "hint", ""))
    counts = ((len(found.ring.keys), "key"), (len(found.remotes), "remote"))
    held = ", ".join(f"{count} trusted {name}{'s' * (count != 1)}" for count, name in counts)
    what = f"policy {found.policy} ({found.because}), {held}"
    wrong = _cannot_hold(found)
    if wrong:
        return Finding("trust", "failed", f"{what}: {wrong[0]}", wrong[1])
    return Finding("trust", "ok", what)


def _cannot_hold(found: Overview) -> tuple[str, str] | None:
    """Why nothing can be loaded under the policy, and what to do."""
    if found.policy not in (SIGNED, PROD):
        return None
    try:
        metadata.version("cryptography")
    except metadata.PackageNotFoundError:
        return "signatures cannot be checked", install("cryptography")
    if not found.ring.keys:
        return "no signature can count", "vcc trust add FILE.pub trusts a key"
    if found.policy == PROD and not found.rules:
        return "prod.json is not there", "docs/security.md shows the file"
    return None
