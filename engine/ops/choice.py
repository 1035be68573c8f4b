"""Which back end each operator layer uses: one pure function of values. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vcc.engine.config.custom_ops import OpChoices
from vcc.engine.ops.backends import ALIASES, BACKENDS, NATIVE, OWN, order_of
from vcc.engine.ops.capabilities import EVERYTHING, Available, available, older
from vcc.engine.ops.names import CUSTOM_OPS
from vcc.engine.ops.surfaces.row import Row

NATIVE_METHOD = BACKENDS[NATIVE].method

Facts = Mapping[str, float]
"""Numbers that a layer is built with, which a kernel may limit: `width`, `weight_offset`, ..."""


@dataclass(frozen=True, slots=True)
class OpChoice:
    """What operator layers choose from when they are built.

    Args:
        enabled: custom ops (`rms_norm`, ...) whose kernel is wanted; all others use plain torch,
            which the compiler fuses.
        platform: key of `backends.ORDER`; any other is out of tree.
        replacements: (class name, class) pairs: constructing the named layer builds that subclass.
        asked: (custom op, back end) pairs of the user's: that one or an error.
        arch: architecture to build for; empty when it is not known.
        dtype: element type of the activations under torch's name; empty when it is not known.
        here: what this install has.
        whys: (custom op, why it is on or off), for reasons.
    """

    enabled: frozenset[str] = frozenset()
    platform: str = "cpu"
    replacements: tuple[tuple[str, type], ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    arch: str = ""
    dtype: str = ""
    here: Available = EVERYTHING
    whys: tuple[tuple[str, str], ...] = ()

    def replacing(self, name: str, layer: type) -> OpChoice:
        """The same choice with `layer` built wherever the layer called `name` is constructed."""
        others = tuple(pair for pair in self.replacements if pair[0] != name)
        return replace(self, replacements=(*others, (name, layer)))

    def replacement(self, name: str) -> type | None:
        """The replacement of a layer name, or None."""
        return dict(self.replacements).get(name)

    def why(self, op: str) -> str:
        """Why an op is on or off."""
        told = dict(self.whys).get(op)
        return told or ("it is enabled" if op in self.enabled else "it is not enabled")


def choice_of(ops: OpChoices, platform: str, arch: str = "", dtype: str = "") -> OpChoice:
    """A choice from what a configuration decided, on this install, without replacements.

    Args:
        ops: the decisions.
        platform: key of `backends.ORDER`.
        arch, dtype: as in OpChoice.
    """
    here = available(platform, arch)
    return OpChoice(ops.enabled, platform, (), ops.asked, arch, dtype, here, ops.whys)


@dataclass(frozen=True, slots=True)
class Subject:
    """A layer as the choice sees it.

    Args:
        op: custom op.
        layer: name of the class.
        operators: names in `torch.ops.vcc` that a kernel back end calls.
        own: back ends whose method the class defines by itself: they need no surface.
        first: of those, the ones that a replacement defines; they come before all others.
        rows: surfaces that the class brings along, by back end; they stand in for ours.
    """

    op: str
    layer: str
    operators: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()
    rows: Mapping[str, Mapping[str, Row]] = field(default_factory=dict)

    def surface(self, backend: str) -> Mapping[str, Row]:
        """What a back end has for this layer."""
        return self.rows.get(backend, BACKENDS[backend].surface)

    @classmethod
    def of(cls, op: str) -> Subject:
        """The layer of ours for a known op."""
        return cls(op, CUSTOM_OPS[op].layer, CUSTOM_OPS[op].operators)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A back end that was looked at; `refusal` says why not, empty for the one that is taken."""

    backend: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen back end of a layer.

    Args:
        method: the method that runs it.
        reason: why this one.
        backend: its name.
        candidates: what was looked at, in order; the last is the one taken.
        asked: the back end that the user asked for and does not get; empty otherwise.
        platform: where.
    """

    method: str
    reason: str
    backend: str = NATIVE
    candidates: tuple[Candidate, ...] = ()
    asked: str = ""
    platform: str = ""

    @property
    def refused(self) -> tuple[Candidate, ...]:
        """The candidates that were not taken."""
        return tuple(one for one in self.candidates if one.refusal)


def choose(subject: Subject, choice: OpChoice, facts: Facts | None = None) -> Route:
    """Choose the back end of a layer.

    Args:
        subject: the layer.
        choice: platform, configuration, install.
        facts: numbers of the layer.

    Raises:
        ValueError: the order of the platform does not end with `native`, which always fits.
    """
    order, known = _order(subject, choice.platform), facts or {}
    if subject.op not in choice.enabled:
        return _off(subject, choice)
    asked = _asked(subject, choice)
    candidates: list[Candidate] = []
    for name in order:
        refusal = _refusal(name, subject, choice, known, asked)
        candidates.append(Candidate(name, refusal))
        if not refusal:
            missed = asked if asked and asked != name else ""
            reason = _reason(name, subject, choice, candidates)
            return _route(name, reason, tuple(candidates), missed, choice.platform)
    raise ValueError(f"{subject.layer} has no back end, not even native")


def _asked(subject: Subject, choice: OpChoice) -> str:
    name = dict(choice.asked).get(subject.op, "")
    return ALIASES.get(name, name)


def _route(
    name: str, reason: str, candidates: tuple[Candidate, ...], missed: str, platform: str
) -> Route:
    return Route(BACKENDS[name].method, reason, name, candidates, missed, platform)


def _off(subject: Subject, choice: OpChoice) -> Route:
    why = f"{subject.op} is off: {choice.why(subject.op)}"
    others = tuple(n for n in _order(subject, choice.platform) if n != NATIVE)
    candidates = (*(Candidate(name, why) for name in others), Candidate(NATIVE))
    return Route(NATIVE_METHOD, why, NATIVE, candidates, platform=choice.platform)


def _order(subject: Subject, platform: str) -> tuple[str, ...]:
    """The platform's order; what a replacement defines by itself goes first."""
    order = order_of(platform)
    if OWN in subject.own and OWN not in order:
        order = (OWN, *order)
    return (
        *(name for name in order if name in subject.first),
        *(name for name in order if name not in subject.first),
    )


def _refusal(name: str, subject: Subject, choice: OpChoice, facts: Facts, asked: str) -> str:
    """Why a back end is not taken; native is always taken when nothing before it is."""
    if name == NATIVE:
        return ""
    if asked and asked != name:
        return f'custom_ops asks for "{asked}"'
    if name in subject.own:
        return ""
    return next(_lacking(name, subject, choice, facts), "")


def _lacking(name: str, subject: Subject, choice: OpChoice, facts: Facts) -> Iterator[str]:
    if name == OWN or not subject.operators:
        yield f"{subject.layer} has no {BACKENDS[name].method} of its own"
        return
    surface = subject.surface(name)
    for op in subject.operators:
        if op not in surface:
            yield f"there is no {op} among the kernels of {name}"
        elif why := surface[op].refusal(choice.arch, choice.dtype, facts):
            yield f"{op} of {name}: {why}"
    if missing := dict(choice.here.missing).get(name):
        yield missing
        return
    version = dict(choice.here.versions).get(name)
    for op in subject.operators:
        if version and op in surface and older(version, surface[op].minimum):
            yield f"{op} needs version {surface[op].minimum} of its package, not {version}"


def _reason(name: str, subject: Subject, choice: OpChoice, looked: Sequence[Candidate]) -> str:
    if name == _asked(subject, choice):
        return f'custom_ops asks for "{name}"'
    if name in subject.first:
        return f"{subject.layer} has a {BACKENDS[name].method} of its own"
    if name == NATIVE:
        return f"no kernel can be used: {'; '.join(dict.fromkeys(c.refusal for c in looked[:-1]))}"
    version = dict(choice.here.versions).get(name, "")
    package = BACKENDS[name].package
    which = f", {package.distribution} {version}" if package and version else ""
    return f"{choice.why(subject.op)}; the first that can be used on {choice.platform}{which}"
