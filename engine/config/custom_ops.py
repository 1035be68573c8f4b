"""The custom-op grammar: a base `all` or `none`, then `+op` and `-op`.

`+op:triton` asks for one back end of an op: that one or an error. `+op=package.module:Class` builds
that class in the place of the op's layer; an entry point of group `vcc.ops` may name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcc.cache.errors import ConfigError

from .checks import suggestion
from .modes import Backend, CompileMode

BASES = ("all", "none")

NATIVE = "native"
"""The back end that is plain torch; asking for it switches an op off."""

OP_BACKENDS = ("cpu", "cuda", "hip", NATIVE, "rocm", "triton", "xpu")
"""Names that may follow `+op:`."""

ALIASES = {"rocm": "hip"}

_TOKEN = re.compile(r"(?P<sign>[+-])(?P<op>[^:=]*)(?::(?P<backend>[^=]*)|=(?P<layer>.+))?")


@dataclass(frozen=True, slots=True)
class OpDecision:
    """Whether a custom op runs as its own kernel, and why.

    Args:
        op: name.
        enabled: its kernel is wanted.
        why: the reason.
        backend: the back end that was asked for; empty when any will do.
        layer: what is built in the layer's place: an entry point or `module:Class`; empty for ours.
    """

    op: str
    enabled: bool
    why: str
    backend: str = ""
    layer: str = ""

    @property
    def token(self) -> str:
        """The token that says the same; empty for an op that is off."""
        if not self.enabled:
            return ""
        asked = f":{self.backend}" if self.backend else ""
        return f"+{self.op}{asked}" + (f"={self.layer}" if self.layer else "")


@dataclass(frozen=True, slots=True)
class OpChoices:
    """The decision for every known op, in order of name."""

    decisions: tuple[OpDecision, ...]

    @property
    def enabled(self) -> frozenset[str]:
        """Names of the enabled ops."""
        return frozenset(one.op for one in self.decisions if one.enabled)

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """(op, back end) pairs of the user's."""
        return tuple((one.op, one.backend) for one in self.decisions if one.backend)

    @property
    def layers(self) -> tuple[tuple[str, str], ...]:
        """(op, class of the user's) pairs."""
        return tuple((one.op, one.layer) for one in self.decisions if one.layer)

    @property
    def whys(self) -> tuple[tuple[str, str], ...]:
        """(op, why it is on or off) pairs."""
        return tuple((one.op, one.why) for one in self.decisions)

    def as_config(self) -> tuple[str, ...]:
        """The canonical `custom_ops` value with the same meaning for these ops."""
        return ("none", *(one.token for one in self.decisions if one.enabled))


def default_base(mode: CompileMode, backend: Backend) -> tuple[str, str]:
    """The base when the user gives none, and why (row M7)."""
    if not mode.compiles:
        return "all", "nothing is compiled, so hand-written kernels are the fast ones"
    if backend is Backend.EAGER:
        return "all", "the eager back end does not fuse plain torch"
    return "none", "Inductor fuses the plain torch form"


def choose_ops(
    tokens: Sequence[str] | None, known: Sequence[str], mode: CompileMode, backend: Backend
) -> OpChoices:
    """Decide every known op.

    Args:
        tokens: the `custom_ops` value, for example `("none", "+rms_norm")`; None when unset.
        known: names of all custom ops.
        mode, backend: they give the base when the tokens name none.

    Raises:
        ConfigError: both bases, an op both enabled and disabled, two back ends or two classes for
            one op, an unknown or unsigned name.
    """
    base, said = _read(tokens or (), known)
    named, why = (base, f'base "{base}" was asked for') if base else default_base(mode, backend)
    return OpChoices(
        tuple(said.get(op) or OpDecision(op, named == "all", why) for op in sorted(set(known)))
    )


def decided(tokens: Iterable[str]) -> OpChoices:
    """What a resolved `custom_ops` says, as an artifact has it: the ops that are on."""
    found = (_parsed(token) for token in tokens if token not in BASES)
    return OpChoices(tuple(one for one in found if one is not None and one.enabled))


def _read(tokens: Sequence[str], known: Sequence[str]) -> tuple[str, dict[str, OpDecision]]:
    bases = {token for token in tokens if token in BASES}
    if len(bases) > 1:
        raise ConfigError('custom_ops has both "all" and "none"', "", "keep one of them")
    said: dict[str, OpDecision] = {}
    for token in tokens:
        if token not in BASES:
            found = _checked(token, known)
            said[found.op] = _agreeing(said.get(found.op, found), found)
    return next(iter(bases), ""), said


def _agreeing(old: OpDecision, new: OpDecision) -> OpDecision:
    """Two tokens of one op as one decision."""
    if old.enabled != new.enabled:
        if NATIVE in (old.backend, new.backend):
            raise _twice(new.op, old.backend or "any kernel", new.backend or "any kernel")
        raise ConfigError(
            f'custom_ops both enables and disables "{new.op}"', "", "keep one of the two"
        )
    for name in ("backend", "layer"):
        first, second = getattr(old, name), getattr(new, name)
        if first and second and first != second:
            raise _twice(new.op, first, second)
    if {old.layer, new.layer} != {""} and {old.backend, new.backend} != {""}:
        raise _twice(new.op, old.layer or old.backend, new.layer or new.backend)
    return new if new.backend or new.layer else old


def _twice(op: str, first: str, second: str) -> ConfigError:
    return ConfigError(
        f'custom_ops asks for two kinds of "{op}"', f"{first} and {second}", "keep one of them"
    )


def _checked(token: str, known: Sequence[str]) -> OpDecision:
    if token[0] not in "+-":
        signed = f'write "+{token}" or "-{token}"' if token in known else ""
        hint = signed or suggestion(token, [*BASES, *(f"+{op}" for op in sorted(known))])
        raise ConfigError(f'cannot read custom op "{token}"', "it has no sign", hint)
    found = _parsed(token)
    op = token[1:] if found is None else found.op
    if found is None or op not in known:
        raise ConfigError(f'unknown custom op "{op}"', "", suggestion(op, sorted(known)))
    return found


def _parsed(token: str) -> OpDecision | None:
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    op, backend, layer = match["op"], match["backend"], match["layer"] or ""
    if match["sign"] == "-":
        if backend is not None or layer:
            raise ConfigError(
                f'cannot read custom op "{token}"',
                "an op that is off has neither a back end nor a class",
                f'write "-{op}", or begin with +',
            )
        return OpDecision(op, False, f'"{token}" was asked for')
    if backend is not None and backend not in OP_BACKENDS:
        raise ConfigError(f'unknown back end "{backend}"', token, suggestion(backend, OP_BACKENDS))
    asked = ALIASES.get(backend or "", backend or "")
    return OpDecision(op, asked != NATIVE, f'"{token}" was asked for', asked, layer)
