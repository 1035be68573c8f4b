"""Session: from a settled request to a booted artifact, warm where the store has one.

Finding an artifact imports no torch. A miss says why and builds in this process; a damaged
artifact is set aside and the next one, or a new build, takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError
from vcc.cache.gate import Untrusted
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cache.use import note_boot, note_missed
from vcc.engine.adapters import check_adapters, load_adapters
from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
from vcc.engine.events import BUILDING, Events, NotedEvents, NullEvents
from vcc.engine.finding import Found, check_can_build, find, note_missed_lookup, of_ref
from vcc.engine.matching import play_of
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.request import Settled, look_up
from vcc.engine.trail import Trail

if TYPE_CHECKING:
    from vcc.engine.runtime.boot import Booted, BootedModule
    from vcc.engine.runtime.graph_stat import StepSink

Boots = TypeVar("Boots")


@dataclass(frozen=True, slots=True)
class Session:
    """What a run works with; notes are kept for its report.

    Attributes:
        settled: what is asked for.
        store: where artifacts are.
        golden: "off", "one" or "all": which piece goldens are checked at boot.
        require_warm: a miss is an error, nothing is compiled.
        exact: an artifact answers only when its full keys are those of a build here.
        events, ledger, counters, trail: who is told, and the accounts.
        batches: is told of every step of a decoder; None: nobody.
        kv_memory: how much memory the KV cache may take, on a GPU.
        adapters: (name, directory) of those that are loaded after the boot.
    """

    settled: Settled
    store: Store
    golden: str = "one"
    require_warm: bool = False
    events: Events = field(default_factory=NullEvents)
    ledger: Ledger = field(default_factory=Ledger)
    counters: Counters = field(default_factory=Counters)
    batches: StepSink | None = None
    kv_memory: KvMemory = DEFAULT_KV_MEMORY
    exact: bool = False
    adapters: tuple[tuple[str, Path], ...] = ()
    trail: Trail = field(default_factory=Trail)

    def __post_init__(self) -> None:
        if not isinstance(self.events, NotedEvents):
            object.__setattr__(self, "events", NotedEvents(self.events))
        events = self.events
        remote = self.store.remote
        if remote is not None:
            remote = remote.telling(events.note)
        told = replace(self.store, remote=remote, on_trouble=lambda error: events.note(str(error)))
        object.__setattr__(self, "store", told)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said so far."""
        return tuple(self.events.notes) if isinstance(self.events, NotedEvents) else ()


@dataclass(frozen=True, slots=True)
class Ready(Generic[Boots]):
    """A booted artifact; `artifact` is its id, None when it was built here and not stored."""

    booted: Boots
    artifact: str | None


def open_session(session: Session, lengths: Sequence[int] = ()) -> Ready[Booted]:
    """Boot an artifact that answers the request of a decoder.

    Args:
        session: what to boot and how.
        lengths: tokens of the sequences to come, prompt and answer; they size the KV cache.

    Raises:
        MissingArtifact: there is none and `require_warm` forbids to build one.
        IntegrityError: all there are are damaged and `require_warm` forbids to build one.
        ModelError: an adapter is malformed, or not of this model.
        CompileError, DeviceError: the build or the boot failed.
    """

    def booting(loaded: Loaded) -> Booted:
        with session.ledger.phase("import"):
            from vcc.engine.runtime.boot import boot
        return boot(
            loaded,
            session.settled.request.source,
            golden=session.golden,
            lengths=lengths,
            ledger=session.ledger,
            counters=session.counters,
            events=session.events,
            kv_memory=session.kv_memory,
            site=session.store.root,
            unsigned=session.store.gate.takes_unsigned(session.store.root),
            play=play_of(session.settled),
        )

    if session.adapters:
        check_adapters(session.settled, session.adapters)  # before anything is booted or built
    ready = _open(session, booting)
    if session.adapters:
        load_adapters(ready.booted.runner, session.adapters, session.ledger)
    if session.batches is not None:
        ready.booted.runner.stat.tell(session.batches)
    return ready


def open_module_session(session: Session) -> Ready[BootedModule]:
    """Boot an artifact that answers the request of a plain module; errors as `open_session`."""

    def booting(loaded: Loaded) -> BootedModule:
        with session.ledger.phase("import"):
            from vcc.engine.runtime.boot import boot_module
        return boot_module(
            loaded,
            session.settled.request.source,
            golden=session.golden,
            ledger=session.ledger,
            counters=session.counters,
            events=session.events,
            site=session.store.root,
            unsigned=session.store.gate.takes_unsigned(session.store.root),
        )

    return _open(session, booting)


def _open(session: Session, booting: Callable[[Loaded], Boots]) -> Ready[Boots]:
    with session.ledger.phase("resolve"):
        found = find(session)
    damage: IntegrityError | None = next(map(of_ref, found.damage), None) or found.untrusted
    why = found.why
    for entry in found.entries:
        try:
            return Ready(_stored(session, entry, booting), entry.artifact)
        except Untrusted as error:
            session.trail.passed(entry, error)
            damage, why = error, str(error)  # which names the artifact
            session.events.note(why)
        except IntegrityError as error:
            session.trail.passed(entry, error)
            damage, why = error, f"artifact {entry.artifact[:12]} is damaged: {error}"
            session.store.quarantine(entry, error)
            session.events.note(why)
        except (MissingArtifact, StorageError) as error:
            session.trail.passed(entry, error)
            if session.store.strict and isinstance(error, StorageError):
                raise
            why = f"artifact {entry.artifact[:12]} cannot be read: {error}"
            session.events.note(why)
    session.trail.nothing(why)
    note_missed(session.store.root, look_up(session.settled)[0].digest.hex)
    note_missed_lookup(session, why)
    if session.require_warm or session.store.gate.fails_closed:
        raise _refused(session, found, why, damage)
    check_can_build(session, found, why)
    return _built(session, why, booting)


def _refused(
    session: Session, found: Found, why: str, damage: IntegrityError | None
) -> IntegrityError | MissingArtifact:
    """Damage that left nothing to boot from is damage; what is not there is a miss."""
    from vcc.engine.next_step import how_to_build  # not on the way of a warm boot

    hint = how_to_build(session.settled, session.store.root, found.refused)
    if damage is not None:
        if not damage.hint or damage.hint.endswith("vcc compile"):  # who found it knows no model
            damage.hint = hint
        return damage
    return MissingArtifact(f"no artifact for {session.settled.request.source.name}", why, hint)


def _stored(session: Session, entry: Entry, booting: Callable[[Loaded], Boots]) -> Boots:
    with session.ledger.phase("verify"):
        loaded = session.store.load(entry)
    booted = booting(loaded)
    session.trail.taken(entry, loaded, booted)
    session.counters.add("hits")
    note_boot(session.store.root, entry.artifact)
    return booted


def _built(session: Session, why: str, booting: Callable[[Loaded], Boots]) -> Ready[Boots]:
    reason = "" if why in session.notes else f": {why}"
    session.events.note(BUILDING + reason)
    with session.ledger.phase("compile"):
        from vcc.engine.pipeline import build

        # The remote was asked by the look-up already.
        store = replace(session.store, remote=None)
        built = build(session.settled.request, store, session.events, session.counters)
    if built.trouble:
        session.events.note(f"the artifact was not stored: {built.trouble}")
    booted = booting(built.loaded)
    session.trail.taken(built.entry if built.reused else None, built.loaded, booted)
    return Ready(booted, None if built.entry is None else built.entry.artifact)
