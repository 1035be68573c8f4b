"""The certificate of a boot: what was hit, missed, built, verified and captured, as plain values.

It is written for machines: `docs/ci.md` has the schema. Keys are added within a version; one that
changes its meaning makes a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from vcc.cache.errors import VccError
from vcc.engine.monitor import Counters, Ledger, rounded
from vcc.engine.request import Settled, look_up
from vcc.engine.trail import Trail, WatchedEvents

if TYPE_CHECKING:
    from vcc.engine.session import Session

KIND, VERSION = "vcc boot", 1
BOOTING, DONE, FAILED = "booting", "done", "failed"

WARM = ("compiles", "traces", "misses")
"""Counters that are 0 in a warm boot."""


class Finished(Protocol):
    """The report of a run, whatever it did."""

    def as_dict(self) -> dict[str, object]:
        """Its keys, which a certificate begins with."""


def begun() -> dict[str, object]:
    """What stands in the file while the boot goes on: a process that is killed leaves this."""
    return {"report": KIND, "version": VERSION, "state": BOOTING, "warm": False}


def certificate(
    ledger: Ledger,
    watched: WatchedEvents,
    session: Session | None,
    found: Finished | None,
    error: VccError | None,
    explanation: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The certificate.

    Args:
        ledger: the account of the process.
        watched: heard what a build did.
        session: what the run worked with; None when it failed before there was one.
        found: the report of the run; None when it failed.
        error: what it failed with.
        explanation: of a miss that was not allowed, as `vcc explain --json` has it.
    """
    said = _unfinished(ledger, session) if found is None else found.as_dict()
    trail = Trail() if session is None else session.trail
    counters = said["counters"] if isinstance(said["counters"], dict) else {}
    warm = error is None and bool(counters.get("hits")) and not any(map(counters.get, WARM))
    return {
        **begun(),
        "state": DONE if error is None else FAILED,
        "warm": warm,
        **said,
        "request": None if session is None else _request(session.settled),
        "hits": _hits(trail),
        "misses": [asdict(one) for one in trail.misses],
        "verified": _verified(trail, session),
        "stages": [{"stage": name, "seconds": round(s, 6)} for name, s in watched.stages],
        "built": [asdict(one) for one in watched.items],
        "graphs": _of_runner(trail, "graph_list"),
        "gemms": _of_runner(trail, "gemm_routes"),
        "error": None if error is None else _plain(error),
        "explanation": None if explanation is None else dict(explanation),
    }


def _plain(error: VccError) -> dict[str, object]:
    """An error without its explanation, which has a place of its own."""
    return {name: value for name, value in error.as_dict().items() if name != "explanation"}


def _unfinished(ledger: Ledger, session: Session | None) -> dict[str, object]:
    """The keys of a run's report, as far as it came."""
    phases, seconds = ledger.account()
    counters = Counters() if session is None else session.counters
    return {
        "artifact": None,
        "phases": rounded(phases),
        "seconds": round(seconds, 6),
        "counters": counters.as_dict(),
        "notes": [] if session is None else list(session.notes),
    }


def _request(settled: Settled) -> dict[str, object]:
    base, stated = look_up(settled)
    return {
        "model": settled.request.source.name,
        "base": base.digest.hex,
        "fields": {**dict(base), **stated},
    }


def _hits(trail: Trail) -> list[dict[str, object]]:
    if trail.entry is None or trail.loaded is None:
        return []
    entry, loaded = trail.entry, trail.loaded
    return [
        {
            "artifact": entry.artifact,
            "title": entry.title,
            "created": entry.created,
            "tier": loaded.tier,
            "trust": loaded.trust,
            "host_rules": dict(entry.host_rules),
            "builder": dict(loaded.manifest.builder),
        }
    ]


def _verified(trail: Trail, session: Session | None) -> dict[str, object]:
    """Bytes whose digest was compared, and the artifact's blobs by kind."""
    if trail.loaded is None:
        return {"bytes": 0, "check": None, "blobs": []}
    refs = {one.sha256: one for one in trail.loaded.manifest.blobs.values()}.values()
    count, size = Counter(one.kind for one in refs), Counter[str]()
    for one in refs:
        size[one.kind] += one.size
    kinds = [{"kind": kind, "blobs": count[kind], "bytes": size[kind]} for kind in sorted(count)]
    fast = session is not None and session.store.gate.fast_check
    check = "XXH3-128 where this account alone can write, else SHA-256" if fast else "SHA-256"
    return {"bytes": trail.loaded.verified.bytes, "check": check, "blobs": kinds}


def _of_runner(trail: Trail, name: str) -> list[dict[str, Any]]:
    """A list that the runner keeps, as far as its loader has it."""
    ask = getattr(getattr(trail.booted, "runner", None), name, None)
    return list(ask()) if callable(ask) else []
