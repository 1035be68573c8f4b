"""The custom-op grammar: a base `all` or `none`, then `+op` and `-op`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcc.cache.errors import ConfigError

from .checks import suggestion
from .modes import Backend, CompileMode

BASES = ("all", "none")


@dataclass(frozen=True, slots=True)
class OpDecision:
    """Whether a custom op runs as its own kernel, and why."""

    op: str
    enabled: bool
    why: str


@dataclass(frozen=True, slots=True)
class OpChoices:
    """The decision for every known op, in order of name."""

    decisions: tuple[OpDecision, ...]

    @property
    def enabled(self) -> frozenset[str]:
        """Names of the enabled ops."""
        return frozenset(one.op for one in self.decisions if one.enabled)

    def as_config(self) -> tuple[str, ...]:
        """The canonical `custom_ops` value with the same meaning for these ops."""
        return ("none", *(f"+{one.op}" for one in self.decisions if one.enabled))


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
        ConfigError: both bases, an op both enabled and disabled, an unknown or unsigned name.
    """
    base, on, off = _read(tokens or (), known)
    named, why = (base, f'base "{base}" was asked for') if base else default_base(mode, backend)
    return OpChoices(
        tuple(
            OpDecision(op, True, f'"+{op}" was asked for')
            if op in on
            else OpDecision(op, False, f'"-{op}" was asked for')
            if op in off
            else OpDecision(op, named == "all", why)
            for op in sorted(set(known))
        )
    )


def _read(tokens: Sequence[str], known: Sequence[str]) -> tuple[str, set[str], set[str]]:
    bases = {token for token in tokens if token in BASES}
    if len(bases) > 1:
        raise ConfigError('custom_ops has both "all" and "none"', "", "keep one of them")
    signed = [token for token in tokens if token not in BASES]
    for token in signed:
        _check_token(token, known)
    on = {token[1:] for token in signed if token[0] == "+"}
    off = {token[1:] for token in signed if token[0] == "-"}
    if both := sorted(on & off):
        raise ConfigError(
            f'custom_ops both enables and disables "{both[0]}"', "", "keep one of the two"
        )
    return next(iter(bases), ""), on, off


def _check_token(token: str, known: Sequence[str]) -> None:
    if token[0] not in "+-":
        signed = f'write "+{token}" or "-{token}"' if token in known else ""
        hint = signed or suggestion(token, [*BASES, *(f"+{op}" for op in sorted(known))])
        raise ConfigError(f'cannot read custom op "{token}"', "it has no sign", hint)
    if token[1:] not in known:
        raise ConfigError(
            f'unknown custom op "{token[1:]}"', "", suggestion(token[1:], sorted(known))
        )
