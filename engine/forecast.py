"""What `vcc compile` would do: hit or miss for each part, and how long the rest takes. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from vcc.cache.errors import VccError
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cache.tiers import RemoteSource, Tier, reading
from vcc.engine.compile.keys import BuildKeys, build_keys
from vcc.engine.compile_count import CompileCount, compile_count
from vcc.engine.config.resolved import Reason
from vcc.engine.estimate import Estimate, estimate
from vcc.engine.exact import different
from vcc.engine.finding import find
from vcc.engine.matching import answers, without_graphs
from vcc.engine.models.traced_keys import check_layout, is_traced, open_questions
from vcc.engine.op_routes import OpRoute, op_routes
from vcc.engine.refusals import check_here, check_request
from vcc.engine.request import Settled, check_buildable, look_up, request_pairs
from vcc.engine.runtime.host import refusal
from vcc.engine.session import Session


class Work(Enum):
    """What a build would have to do."""

    NOTHING = "nothing: the artifact is there"
    PLAN = "a new plan over code that is there"
    ALL = "compile"


@dataclass(frozen=True, slots=True)
class Part:
    """One question and its answer.

    Attributes:
        name: what was asked: request, code key, plan key, a tier, the remote.
        hit: whether it has what is wanted.
        artifact: the first that has; None on a miss.
        detail: why not, or where.
    """

    name: str
    hit: bool
    artifact: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a build would find and do.

    Attributes:
        parts: in the order in which a build asks.
        work: what is left to do.
        estimate: how long it takes.
        reasons: what resolution decided.
        ops: the back end of each custom op.
        compiles: what would be compiled.
        notes: what only a build finds out, why none can be made here, what has no effect.
    """

    parts: tuple[Part, ...]
    work: Work
    estimate: Estimate
    reasons: tuple[Reason, ...]
    ops: tuple[OpRoute, ...] = ()
    compiles: CompileCount = field(default_factory=CompileCount)
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> bool:
        """Whether anything would have to be built."""
        return self.work is not Work.NOTHING

    def part(self, name: str) -> Part:
        """The part of this name."""
        return next(one for one in self.parts if one.name == name)


def forecast(settled: Settled, store: Store) -> Forecast:
    """Ask as a build would ask; nothing is built, pulled or written.

    A part that cannot be asked is a miss with the reason, as it would be for the build. What a
    build refuses before it traces is refused here with the same error.

    Raises:
        ConfigError: the compile mode stores nothing, a name that does not exist, a GPU that no
            device profile is known for.
        DeviceError: the build needs a C++ compiler or a GPU and there is none.
    """
    check_buildable(settled)
    check_request(settled)
    # What is wrong with a tier stands in its own part.
    local = replace(store, remote=None, on_trouble=lambda error: None)
    keys = build_keys(settled)
    code, plan = _keys(settled, local, keys)
    parts = (
        _request(settled, local),
        code,
        plan,
        *_tiers(settled, local),
        *_remote(settled, store),
    )
    work = Work.NOTHING if plan.hit else Work.PLAN if code.hit else Work.ALL
    notes = check_here(settled) if work is Work.ALL else ()
    if work is not Work.NOTHING:
        notes = (*notes, *open_questions(settled.request.source))
    return Forecast(
        parts,
        work,
        _estimated(work, settled, local),
        settled.reasons,
        ops=op_routes(settled),
        compiles=compile_count(settled, local) if work is Work.ALL else CompileCount(),
        notes=(*settled.meaningless, *notes),
    )


def _estimated(work: Work, settled: Settled, store: Store) -> Estimate:
    if work is not Work.ALL:
        return Estimate(0.0, "nothing is compiled")
    try:
        return estimate(settled, store)
    except VccError as error:
        return Estimate(None, f"no history: {error}")


def _request(settled: Settled, store: Store) -> Part:
    """What a run with these options would find."""
    try:
        found = find(Session(settled, replace(store, strict=False)))
    except VccError as error:
        return Part("request", False, None, str(error))
    why = found.why
    for entry in found.entries:
        unfit = _unfit(store, entry, settled)
        if not unfit:
            return Part("request", True, entry.artifact, entry.title)
        why = f"artifact {entry.artifact[:12]} cannot be read: {unfit}"
    return Part("request", False, None, why)


def _unfit(store: Store, entry: Entry, settled: Settled) -> str:
    """Why a boot would pass an artifact over for this checkpoint; empty where it would not."""
    source = settled.request.source
    if not (is_traced(source) and source.tensors):  # the names of others are in the request
        return ""
    try:
        check_layout(source, store.load(entry).manifest.info)
    except VccError as error:
        return str(error)
    return ""


def _keys(settled: Settled, store: Store, keys: BuildKeys) -> tuple[Part, Part]:
    """Whether the code is there, and whether it is there under this plan and request."""
    code, near = None, ""
    try:
        for entry in store.find(look_up(settled)[0]):
            loaded = _loaded(store, entry)
            if loaded is None:
                continue
            found = different(loaded.manifest, settled, keys)
            near = near or _labels(entry, [one.label for one in found])
            if not keys.same_code(loaded.manifest):
                continue
            code = code or Part("code key", True, entry.artifact, "nothing is compiled")
            if not found or (_asked_alike(loaded, settled) and keys.same_plan(loaded.manifest)):
                return code, Part("plan key", True, entry.artifact, "nothing is stored anew")
    except VccError as error:
        near = str(error)
    why = near or "no artifact of this model"
    return code or Part("code key", False, None, why), Part("plan key", False, None, why)


def _labels(entry: Entry, labels: Sequence[str]) -> str:
    """What differs, by name: `vcc explain` has the values."""
    more = f" and {len(labels) - 4} more" if len(labels) > 4 else ""
    return f"artifact {entry.artifact[:12]} differs in {', '.join(labels[:4])}{more}"


def _asked_alike(loaded: Loaded, settled: Settled) -> bool:
    """What the build compares before it takes an artifact as it is."""
    return dict(loaded.manifest.request) == dict(request_pairs(settled)[0])


def _loaded(store: Store, entry: Entry) -> Loaded | None:
    try:
        return store.load(entry)
    except VccError:  # a build goes on to the next as well
        return None


def _tiers(settled: Settled, store: Store) -> tuple[Part, ...]:
    """Which tier has an artifact that answers on this host."""
    return tuple(_tier(tier, settled, store) for tier in store.tiers)


def _tier(tier: Tier, settled: Settled, store: Store) -> Part:
    name, (base, stated) = f"tier {tier.name}", look_up(settled)
    alone = replace(store, root=tier.root, lower=(), strict=True)
    try:
        with reading(tier):
            found = alone.find(base, without_graphs(stated), accept=lambda e: _fits(e, settled))
            entries = [one for one in found if not _unfit(alone, one, settled)]
    except VccError as error:
        return Part(name, False, None, str(error))
    return Part(name, bool(entries), entries[0].artifact if entries else None, str(tier.root))


def _fits(entry: Entry, settled: Settled) -> bool:
    _, stated = look_up(settled)
    return answers(entry, stated) and refusal(dict(entry.host_rules)) is None


def _remote(settled: Settled, store: Store) -> tuple[Part, ...]:
    """What the remote offers; its refs are read, nothing is pulled."""
    if store.remote is None:
        return ()
    base, _ = look_up(settled)
    try:
        entries = _offered(store.remote, base.digest.hex)
    except VccError as error:
        return (Part("remote", False, None, str(error)),)
    fit = [one for one in entries if one.base == base and _fits(one, settled)]
    return (Part("remote", bool(fit), fit[0].artifact if fit else None, store.remote.url),)


def _offered(source: RemoteSource, base: str) -> tuple[Entry, ...]:
    from vcc.cache.remote.offers import offers  # clients of remotes are slow to import
    from vcc.cache.remote.open import open_remote
    from vcc.cache.remote.patience import ON_A_MISS, Patience
    from vcc.cache.remote.source import Source

    if not isinstance(source, Source):
        return ()
    remote = open_remote(source.address, ON_A_MISS)
    try:
        return offers(remote, Patience(ON_A_MISS), base).entries
    finally:
        remote.close()
