"""Prewarming: what of the builds is there, and the rest made one after the other.

A build that fails is reported and does not stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from vcc.cache.digest import Digest
from vcc.cache.errors import VccError
from vcc.cache.key import Key, Pairs
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.compile.keys import build_keys, pairs
from vcc.engine.estimate import NO_HISTORY, Estimate, estimate
from vcc.engine.prewarm.asked import Asked
from vcc.engine.request import Settled, look_up, request_pairs

Clock = Callable[[], float]


class State(Enum):
    """What became of a build."""

    PRESENT = "present"
    MISSING = "missing"
    BUILT = "built"
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One build and what became of it.

    Attributes:
        asked: which.
        state: MISSING with `--check` only; LEFT where the budget was used up.
        artifact: its id; empty where there is none.
        seconds: that it took.
        estimate: of what is missing or left.
        why: the reason, a line.
        error: what failed: the build, or what was to follow it.
        notes: what followed it, such as "pushed".
    """

    asked: Asked
    state: State
    artifact: str = ""
    seconds: float = 0.0
    estimate: Estimate = NO_HISTORY
    why: str = ""
    error: VccError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What follows a build: its name, and what does it and says so."""

    name: str
    do: Callable[[Entry], str]


@dataclass(frozen=True, slots=True)
class Prewarm:
    """How builds are made.

    Attributes:
        store: where they are looked for.
        build: makes one and returns the id of its artifact; None to look only.
        after: done with each artifact, in this order; the first that fails is the last.
        budget: seconds in which builds may be started; None for no bound.
        told: hears of each build that begins, and is left when it is over.
        clock: monotonic, in seconds.
    """

    store: Store
    build: Callable[[Asked], str] | None = None
    after: tuple[Step, ...] = ()
    budget: float | None = None
    told: Callable[[str], None] = field(default=lambda name: None)
    clock: Clock = time.monotonic

    def run(self, asked: Sequence[Asked]) -> tuple[Outcome, ...]:
        """Look for all builds, then make those that are not there, in their order."""
        started, refs = self.clock(), _Refs(self.store)
        looked = [self._looked(one, refs) for one in asked]
        return tuple(self._finished(one, started) for one in looked)

    def _looked(self, asked: Asked, refs: _Refs) -> Outcome:
        if asked.settled is None:
            return Outcome(asked, State.FAILED, error=asked.error)
        try:
            entry, why = stored(asked.settled, self.store, refs)
        except VccError as error:
            return Outcome(asked, State.FAILED, error=error)
        if entry is not None:
            return Outcome(asked, State.PRESENT, entry.artifact)
        return Outcome(asked, State.MISSING, why=why)

    def _finished(self, looked: Outcome, started: float) -> Outcome:
        if looked.state is State.PRESENT:
            return self._followed(looked)
        if looked.state is not State.MISSING or looked.asked.settled is None:
            return looked
        looked = replace(looked, estimate=self._estimate(looked.asked.settled))
        if self.build is None:
            return looked
        left = self._left(looked.estimate, started)
        if left:
            return replace(looked, state=State.LEFT, why=left)
        return self._followed(self._built(looked))

    def _left(self, expected: Estimate, started: float) -> str:
        """Why no build may be started; empty when it may."""
        if self.budget is None:
            return ""
        rest = self.budget - (self.clock() - started)
        if rest <= 0:
            return "the budget is used up"
        if expected.seconds is None or expected.seconds <= rest:
            return ""
        return (
            f"it takes about {expected.seconds:.0f} s, {rest:.0f} s of the budget are left "
            f"({expected.basis})"
        )

    def _built(self, looked: Outcome) -> Outcome:
        self.told(looked.asked.cell.name)
        begun = self.clock()
        try:
            artifact = self.build(looked.asked) if self.build is not None else ""
        except VccError as error:
            state, seconds = State.FAILED, self.clock() - begun
            return replace(looked, state=state, seconds=seconds, error=error, why="")
        seconds = self.clock() - begun
        return replace(looked, state=State.BUILT, artifact=artifact, seconds=seconds, why="")

    def _followed(self, outcome: Outcome) -> Outcome:
        if not self.after or outcome.state is State.FAILED or outcome.asked.settled is None:
            return outcome
        try:
            entry = _entry(outcome.asked.settled, self.store, outcome.artifact)
            for step in self.after:
                outcome = replace(outcome, notes=(*outcome.notes, step.do(entry)))
        except VccError as error:
            return replace(outcome, error=error)
        return outcome

    def _estimate(self, settled: Settled) -> Estimate:
        try:
            return estimate(settled, replace(self.store, remote=None))
        except VccError as error:
            return Estimate(None, f"no history: {error}")


class _Refs:
    """What the tiers hold, read once for each base: builds of one model share it."""

    def __init__(self, store: Store) -> None:
        self._store, self._read = store, dict[Digest, tuple[Entry, ...]]()

    def find(self, base: Key, request: Pairs) -> tuple[Entry, ...]:
        """The entries of one request, newest first; the remote is asked where there are none."""
        known = self._read.get(base.digest)
        if known is None:
            known = self._read[base.digest] = replace(self._store, remote=None).find(base)
        found = tuple(one for one in known if one.request == request)
        if found or self._store.remote is None:
            return found
        return self._store.find(base, accept=lambda one: one.request == request)


def stored(settled: Settled, store: Store, refs: _Refs | None = None) -> tuple[Entry | None, str]:
    """The artifact that a build of this request here would make, if a tier or the remote has it.

    Args:
        settled: the request.
        store: where it is looked for.
        refs: what was read of it before.

    Returns:
        The entry, else None and why not.

    Raises:
        StorageError, Unsafe: the store cannot be read.
        ConfigError, DeviceError: nothing can be built for this request here.
    """
    fields, open_fields = request_pairs(settled)
    base = Key.of({label: text for label, text in fields.items() if label not in open_fields})
    keys = build_keys(settled)
    why = "no artifact of this model, dtype and options"
    for entry in (refs or _Refs(store)).find(base, pairs(fields)):
        try:
            manifest = store.load(entry).manifest
            if not keys.same_code(manifest):
                why = f"artifact {entry.id.short} was made by another toolchain or vcc"
            elif not keys.same_plan(manifest):
                why = f"artifact {entry.id.short} has another plan over the same code"
            else:
                return entry, ""
        except VccError as error:
            store.quarantine(entry, error)
            why = f"artifact {entry.id.short} cannot be used: {error}"
    return None, why


def _entry(settled: Settled, store: Store, artifact: str) -> Entry:
    found = replace(store, remote=None).find(look_up(settled)[0])
    entry = next((one for one in found if one.artifact == artifact), None)
    if entry is None:
        raise VccError(
            "an artifact is gone before it was signed and pushed",
            artifact,
            "another process removed it; vcc prewarm builds it again",
        )
    return entry
