"""The look-up of a run: what answers and can be used here, and why nothing does. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vcc.cache.blob import Damaged
from vcc.cache.errors import DeviceError, IntegrityError, MissingArtifact, StorageError, UsageError
from vcc.cache.gate import Untrusted
from vcc.cache.key import Key
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.config.modes import Platform
from vcc.engine.matching import answers, without_graphs
from vcc.engine.request import Settled, look_up, request_pairs
from vcc.engine.runtime.host import NotHere, refusal

if TYPE_CHECKING:
    from vcc.cache.damage import Damage

COMPILE_MODE = "config.mode"
"""An open field; code made in another mode answers too, but comes second."""


class Looking(Protocol):
    """What a look-up needs of a session."""

    @property
    def settled(self) -> Settled:
        """What is asked for."""

    @property
    def store(self) -> Store:
        """Where artifacts are."""

    @property
    def exact(self) -> bool:
        """Whether only an artifact that a build here would make just so answers."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a look-up.

    Attributes:
        entries: those that answer, newest first.
        why: why there are none; empty when there are.
        refused: the host rule that the nearest breaks, when that is why.
        damage: what is wrong with refs of this request; they were set aside.
        untrusted: why the gate refuses what the remote has, when that is why.
    """

    entries: tuple[Entry, ...]
    why: str = ""
    refused: NotHere | None = None
    damage: tuple[Damage, ...] = ()
    untrusted: Untrusted | None = None


def find(session: Looking) -> Found:
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
        if usable and session.exact:
            usable, inexact = _exact(session, usable)
            if not usable:
                return Found((), inexact, damage=tuple(damage))
        if usable:
            return Found(_preferred(usable, session.settled, stated), damage=tuple(damage))
        return _nothing(replace(store, remote=None), base, stated, damage)
    except StorageError as error:
        if store.strict:
            raise
        return Found((), str(error), damage=tuple(damage))


def stored_for(settled: Settled, store: Store) -> Entry:
    """The entry that a run of this request would try first, wherever it can be loaded.

    No remote is asked, and host rules are not: what is stored can be looked at on any machine.

    Raises:
        MissingArtifact: none answers; says why, and what builds one.
        StorageError: the store cannot be read.
    """
    base, stated = look_up(settled)
    local = replace(store, remote=None)
    fit = [one for one in local.find(base, without_graphs(stated)) if answers(one, stated)]
    if fit:
        return _preferred(tuple(fit), settled, stated)[0]
    from vcc.engine.next_step import how_to_build

    what = f"no artifact for {settled.request.source.name}"
    raise MissingArtifact(what, str(local.misses(base, stated)), how_to_build(settled, store.root))


def _exact(session: Looking, entries: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], str]:
    """Those that a build here would make just so, and why the first is none of them."""
    from vcc.engine.compile.keys import keys_here  # a run asks for this seldom
    from vcc.engine.exact import inexact

    keys = keys_here(session.settled)
    why = {one: inexact(session.store, one, session.settled, keys) for one in entries}
    first = f"artifact {entries[0].artifact[:12]} is not exact: {why[entries[0]]}"
    return tuple(one for one in entries if not why[one]), first


def _nothing(store: Store, base: Key, stated: Mapping[str, str], damage: list[Damage]) -> Found:
    """Why no entry can be used."""
    near = (entry for entry in store.find(base, without_graphs(stated)) if answers(entry, stated))
    first = next(near, None)
    refused = None if first is None else refusal(dict(first.host_rules))
    if first is not None and refused is not None:
        why = f"artifact {first.artifact[:12]} answers, but is not for this host: {refused.why}"
        return Found((), why, refused, tuple(damage))
    why = str(of_ref(damage[0])) if damage else str(store.misses(base, stated))
    failure = store.remote_failure(base)
    if isinstance(failure, Untrusted):
        return Found((), f"{failure}", damage=tuple(damage), untrusted=failure)
    if failure is not None:
        why = f"{why}; the remote has no answer: {failure}"
    return Found((), why, damage=tuple(damage))


def _watched(session: Looking) -> tuple[Store, list[Damage]]:
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


def note_missed_lookup(session: Looking, why: str) -> None:
    """For `vcc explain`."""
    from vcc.cache.notes import LastLookup, note_lookup, now  # not on the way of a warm boot

    source = session.settled.request.source
    base, stated = look_up(session.settled)
    identity = source.model_key().entries
    looked = LastLookup(source.name, base, tuple(sorted(stated.items())), identity, why, now())
    note_lookup(session.store.root, looked)


def check_can_build(session: Looking, found: Found, why: str) -> None:
    """Refuse to build where nothing can be built, or where the result could not be booted.

    Raises:
        DeviceError: torch is not installed, with what answers all the same; or this machine has
            no GPU of the target.
    """
    from vcc.engine.compile.versions import has_torch
    from vcc.engine.next_step import how_to_build

    if not has_torch():
        raise DeviceError(
            f"{session.settled.request.source.name} cannot be booted here",
            why if found.refused is not None else f"{why}, and without torch none can be built",
            how_to_build(session.settled, session.store.root, found.refused),
        )
    check_gpu_here(session.settled, session.store.root)


def check_gpu_here(settled: Settled, root: Path) -> None:
    """Refuse a target that is a GPU which this machine does not have; recordings refuse themselves.

    Raises:
        DeviceError: with what the driver says, and what builds an artifact for another machine.
    """
    request = settled.request
    if request.target.platform is not Platform.CUDA or settled.resolved.artifact.needs_gpu:
        return
    from vcc.engine.next_step import compile_command
    from vcc.engine.runtime.player.device import open_device

    try:
        device = open_device()
        why = f"the target is {request.target}, {device.name} is {device.arch}"
        if device.arch == request.target.arch.rstrip("af"):
            return
    except (DeviceError, UsageError) as error:  # the latter: this process has another driver
        why = f"the target is {request.target}; {error}"
    raise DeviceError(
        f"{request.source.name} cannot be booted here, so it is not built",
        why,
        f"{compile_command(request, root, str(request.target))} builds it for a machine that has "
        "such a GPU; --target cpu runs on this one",
    )


def of_ref(damage: Damage) -> IntegrityError:
    """Damage of a ref as the error that it is for a run."""
    return Damaged(f"the ref of artifact {damage.artifact[:12]} is damaged", damage.reason)
