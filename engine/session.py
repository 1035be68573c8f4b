"""Session: from a settled request to a booted artifact, warm where the store has one.

Finding an artifact imports no torch. A miss says why and builds in this process; a damaged
artifact is set aside and the next one, or a new build, takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from vcc.cache.blob import Damaged
from vcc.cache.damage import Damage
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError
from vcc.cache.gate import Untrusted
from vcc.cache.key import Key
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cache.use import note_boot, note_missed
from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
from vcc.engine.events import Events, NotedEvents, NullEvents
from vcc.engine.matching import answers, play_of, without_graphs
from vcc.engine.monitor import Counters, Ledger
from vcc.engine.request import Settled, look_up, request_pairs
from vcc.engine.runtime.host import NotHere, refusal

COMPILE_MODE = "config.mode"
"""An open field; code made in another mode answers too, but comes second."""

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
        events, ledger, counters: who is told, and the accounts.
        batches: is told of every step of a decoder; None: nobody.
        kv_memory: how much memory the KV cache may take, on a GPU.
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


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a look-up.

    Attributes:
        entries: those that answer, newest first.
        why: why there are none; empty when there are.
        refused: the host rule that the nearest breaks, when that is why.
        damage: what is wrong with refs of this request; they were set aside.
    """

    entries: tuple[Entry, ...]
    why: str = ""
    refused: NotHere | None = None
    damage: tuple[Damage, ...] = ()


def find(session: Session) -> Found:
    """Ask the store; imports no torch. A store that cannot be read has nothing, and says so.

    Raises:
        StorageError: it cannot be read and is strict.
    """
    base, stated = look_up(session.settled)
    store, damage = _watched(session)

    def fits(entry: Entry) -> bool:
        return answers(entry, stated) and refusal(dict(entry.host_rules)) is None

    try:
        usable = store.find(base, without_graphs(stated), accept=fits)
        if usable:
            return Found(_preferred(usable, session.settled, stated), damage=tuple(damage))
        return _nothing(replace(store, remote=None), base, stated, damage)
    except StorageError as error:
        if store.strict:
            raise
        return Found((), str(error), damage=tuple(damage))


def _nothing(store: Store, base: Key, stated: Mapping[str, str], damage: list[Damage]) -> Found:
    """Why no entry can be used."""
    near = (entry for entry in store.find(base, without_graphs(stated)) if answers(entry, stated))
    refused = next((refusal(dict(entry.host_rules)) for entry in near), None)
    if refused is not None:
        return Found((), f"not for this host: {refused.why}", refused, tuple(damage))
    why = str(_of_ref(damage[0])) if damage else str(store.misses(base, stated))
    return Found((), why, damage=tuple(damage))


def _watched(session: Session) -> tuple[Store, list[Damage]]:
    """The session's store, and what it reports from now on."""
    told: list[Damage] = []

    def tell(damage: Damage) -> None:
        told.append(damage)
        session.store.on_damage(damage)

    return replace(session.store, on_damage=tell), told


def _preferred(
    entries: tuple[Entry, ...], settled: Settled, stated: Mapping[str, str]
) -> tuple[Entry, ...]:
    """Entries of the compile mode that would be built now first, and made for what is stated."""
    wanted = request_pairs(settled)[0][COMPILE_MODE]

    def second(entry: Entry) -> tuple[bool, bool]:
        return entry.fields.get(COMPILE_MODE) != wanted, bool(entry.differences(stated))

    return tuple(sorted(entries, key=second))


def open_session(session: Session, lengths: Sequence[int] = ()) -> Ready[Booted]:
    """Boot an artifact that answers the request of a decoder.

    Args:
        session: what to boot and how.
        lengths: tokens of the sequences to come, prompt and answer; they size the KV cache.

    Raises:
        MissingArtifact: there is none and `require_warm` forbids to build one.
        IntegrityError: all there are are damaged and `require_warm` forbids to build one.
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
            play=play_of(session.settled),
        )

    ready = _open(session, booting)
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
        )

    return _open(session, booting)


def _open(session: Session, booting: Callable[[Loaded], Boots]) -> Ready[Boots]:
    with session.ledger.phase("resolve"):
        found = find(session)
    damage = next((_of_ref(one) for one in found.damage), None)
    why = found.why
    for entry in found.entries:
        try:
            return Ready(_stored(session, entry, booting), entry.artifact)
        except Untrusted as error:
            damage, why = error, f"artifact {entry.artifact[:12]} is not used: {error}"
            session.events.note(why)
        except IntegrityError as error:
            damage, why = error, f"artifact {entry.artifact[:12]} is damaged: {error}"
            session.store.quarantine(entry, error)
            session.events.note(why)
        except (MissingArtifact, StorageError) as error:
            if session.store.strict and isinstance(error, StorageError):
                raise
            why = f"artifact {entry.artifact[:12]} cannot be read: {error}"
            session.events.note(why)
    note_missed(session.store.root, look_up(session.settled)[0].digest.hex)
    if session.require_warm or session.store.gate.fails_closed:
        raise _refused(session, found, why, damage)
    return _built(session, why, booting)


def _of_ref(damage: Damage) -> IntegrityError:
    return Damaged(f"the ref of artifact {damage.artifact[:12]} is damaged", damage.reason)


def _refused(
    session: Session, found: Found, why: str, damage: IntegrityError | None
) -> IntegrityError | MissingArtifact:
    """Damage that left nothing to boot from is damage; what is not there is a miss."""
    from vcc.engine.next_step import how_to_build  # not on the way of a warm boot

    hint = how_to_build(session.settled, session.store.root, found.refused)
    if damage is not None:
        damage.hint = damage.hint or hint
        return damage
    return MissingArtifact(f"no artifact for {session.settled.request.source.name}", why, hint)


def _stored(session: Session, entry: Entry, booting: Callable[[Loaded], Boots]) -> Boots:
    with session.ledger.phase("verify"):
        loaded = session.store.load(entry)
    booted = booting(loaded)
    session.counters.add("hits")
    note_boot(session.store.root, entry.artifact)
    return booted


def _built(session: Session, why: str, booting: Callable[[Loaded], Boots]) -> Ready[Boots]:
    session.events.note(f"no artifact to boot from, so it is built now: {why}")
    with session.ledger.phase("compile"):
        from vcc.engine.pipeline import build

        built = build(session.settled.request, session.store, session.events, session.counters)
    if built.trouble:
        session.events.note(f"the artifact was not stored: {built.trouble}")
    return Ready(booting(built.loaded), None if built.entry is None else built.entry.artifact)
