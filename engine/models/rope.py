"""Rotary position embedding: what a config asks for. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import mend

SETTINGS = mend("rope_parameters (rope_scaling in older files)")


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding of a model.

    Attributes:
        kind: one of `default`, `linear`, `llama3`, `yarn`, `longrope`, or `scaled`: a `longrope`
            whose length is settled.
        theta: base of the geometric series of wavelengths.
        dim: rotated dimensions of a head (even, at most head_dim).
        factor: context extension factor; 1.0 for `default`.
        original: context length before extension, in tokens; 0 where it is not used.
        factors, long_factors: `longrope`: a divisor for each frequency, up to `original` and above.
        low, high: `llama3`: low and high frequency factor; `yarn`: beta_slow and beta_fast.
        truncate: `yarn`: round the correction range to whole dimensions.
        attention: factor on cos and sin (`yarn`, `longrope`), else 1.0.
    """

    kind: str
    theta: float
    dim: int
    factor: float = 1.0
    original: int = 0
    low: float = 0.0
    high: float = 0.0
    truncate: bool = True
    attention: float = 1.0
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    def for_length(self, longest: int) -> RopeSpec:
        """The rope of a step whose sequences have at most so many tokens.

        A sequence keeps its keys, so its frequencies cannot change while it grows: `longrope`
        takes those of the longest that may come.
        """
        if self.kind != "longrope":
            return self
        chosen = self.factors if longest <= self.original else self.long_factors
        return replace(self, kind="scaled", factors=chosen, long_factors=())


def rope_of(
    config: Mapping[str, Any],
    head_dim: int,
    theta: float,
    partial: bool,
    given: Mapping[str, Any] | None = None,
) -> RopeSpec:
    """The rope of a config; old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`) layouts.

    Args:
        config: the parsed `config.json`.
        head_dim: size of one head.
        theta: the architecture's default base.
        partial: whether the architecture rotates only a part of each head when asked to.
        given: the rope settings themselves; None finds them in the config.

    Raises:
        ModelError: the kind of scaling is unknown, or a number is missing or out of range.
    """
    given = _parameters(config) if given is None else given
    kind = str(given.get("rope_type") or given.get("type") or "default")
    kind = _SAME.get(kind, kind)
    if kind not in _KINDS:
        raise _unsupported(kind[:40])
    share = _number(given, "partial_rotary_factor", config.get("partial_rotary_factor"), 1.0)
    dim = int(head_dim * share)
    if share != 1.0 and not partial:
        raise ModelError(
            "rope with partial_rotary_factor is not supported for this architecture",
            f"partial_rotary_factor is {share}, transformers rotates whole heads here",
            "remove partial_rotary_factor from config.json if the model was trained without it",
        )
    if dim < 2 or dim % 2 or dim > head_dim:
        why = f"it is {dim} of {head_dim}"
        raise ModelError("the rotary dimension must be even and fit the head", why, SETTINGS)
    base = _number(given, "rope_theta", config.get("rope_theta"), theta)
    if base <= 1.0:
        raise ModelError("rope_theta must be above 1", f"it is {base}", mend("rope_theta"))
    return _KINDS[kind](_with_original(given, config), base, dim, _longest(config))


def settings_in(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rope settings of a config, in either layout, as they stand there.

    Raises:
        ModelError: they are no object.
    """
    found = {name: config.get(name) for name in ("rope_scaling", "rope_parameters")}
    for name, given in found.items():
        if given is not None and not isinstance(given, Mapping):
            raise ModelError(
                "the rope settings of config.json are not an object",
                f"{name} is {given!r:.80}",
                mend(name),
            )
    return found["rope_scaling"] or found["rope_parameters"] or {}


def _parameters(config: Mapping[str, Any]) -> Mapping[str, Any]:
    given = settings_in(config)
    if given and all(isinstance(value, Mapping) or value is None for value in given.values()):
        return _one_for_all_layers(given)
    return given


def _longest(config: Mapping[str, Any]) -> int:
    return int(_number(config, "max_position_embeddings"))


def _with_original(given: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A context length beside the rope settings wins over the one inside, as in transformers."""
    outside = config.get("original_max_position_embeddings")
    return given if outside is None else {**given, "original_max_position_embeddings": outside}


def _one_for_all_layers(given: Mapping[str, Any]) -> Mapping[str, Any]:
    distinct = {repr(sorted(value.items())): value for value in given.values() if value}
    if len(distinct) != 1:
        raise ModelError(
            "rope settings that differ between layers are not supported",
            f"config.json has one for each of {', '.join(sorted(given))}",
            "this architecture has one table of angles for all layers",
        )
    value: Mapping[str, Any] = next(iter(distinct.values()))
    return value


def _unsupported(kind: str) -> ModelError:
    return ModelError(
        f"rope type {kind!r} is not supported",
        "its frequencies depend on the length of the running sequence"
        if kind == "dynamic"
        else "it is not known",
        f"supported: {', '.join(_KINDS)}",
    )


def _number(given: Mapping[str, Any], name: str, other: Any = None, default: float = 0.0) -> float:
    """A finite positive number; `other` is where older configs keep it. 0 stands for missing."""
    value = given.get(name)
    value = other if value is None else value
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        why = f"it is {value!r:.80}"
        raise ModelError(f"{name} of the rope settings is not a usable number", why, mend(name))
    return float(value)


def _required(given: Mapping[str, Any], kind: str, name: str, other: Any = None) -> float:
    value = _number(given, name, other)
    if not value:
        why = "it is missing or 0 in config.json"
        raise ModelError(f"rope type {kind!r} needs {name}", why, mend(name))
    return value


def _default(given: Mapping[str, Any], theta: float, dim: int, longest: int) -> RopeSpec:
    return RopeSpec("default", theta, dim)


def _linear(given: Mapping[str, Any], theta: float, dim: int, longest: int) -> RopeSpec:
    return RopeSpec("linear", theta, dim, _required(given, "linear", "factor"))


def _llama3(given: Mapping[str, Any], theta: float, dim: int, longest: int) -> RopeSpec:
    factor, low, high = (
        _required(given, "llama3", name)
        for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    if not low < high:
        raise ModelError(
            "rope type 'llama3' needs low_freq_factor below high_freq_factor",
            f"they are {low} and {high}",
            SETTINGS,
        )
    original = _required(given, "llama3", "original_max_position_embeddings", longest)
    return RopeSpec("llama3", theta, dim, factor, int(original), low, high)


def _yarn(given: Mapping[str, Any], theta: float, dim: int, longest: int) -> RopeSpec:
    original = _required(given, "yarn", "original_max_position_embeddings", longest)
    factor = _required(given, "yarn", "factor", longest / original)
    slow, fast = _number(given, "beta_slow") or 1.0, _number(given, "beta_fast") or 32.0
    if original < 1 or min(slow, fast) < 2**-63:
        raise ModelError(
            "the rope settings are out of range",
            f"original_max_position_embeddings {original}, beta_slow {slow}, beta_fast {fast}",
            SETTINGS,
        )
    truncate = bool(given.get("truncate", True))
    attention = _number(given, "attention_factor") or _yarn_attention(given, factor)
    return RopeSpec("yarn", theta, dim, factor, int(original), slow, fast, truncate, attention)


def _yarn_attention(given: Mapping[str, Any], factor: float) -> float:
    one, every = _number(given, "mscale"), _number(given, "mscale_all_dim")
    if one and every:
        return _magnitude(factor, one) / _magnitude(factor, every)
    return _magnitude(factor, 1.0)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * scale * math.log(factor) + 1.0


def _longrope(given: Mapping[str, Any], theta: float, dim: int, longest: int) -> RopeSpec:
    """Long context by a divisor for each frequency (LongRoPE, arXiv 2402.13753)."""
    original = _required(given, "longrope", "original_max_position_embeddings", longest)
    if original < 2:
        why = f"original length {original}"
        raise ModelError("the rope settings are out of range", why, SETTINGS)
    factor = _number(given, "factor") or longest / original
    told = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (_divisors(given, f"{name}_factor", dim // 2) for name in ("short", "long"))
    return RopeSpec(
        "longrope",
        theta,
        dim,
        factor,
        int(original),
        attention=_number(given, "attention_factor") or told,
        factors=short,
        long_factors=long,
    )


def _divisors(given: Mapping[str, Any], name: str, count: int) -> tuple[float, ...]:
    values = given.get(name)
    if not isinstance(values, list) or len(values) != count:
        found = f"{len(values)} numbers" if isinstance(values, list) else f"{values!r:.40}"
        what = f"rope type 'longrope' needs {name} of {count} numbers"
        raise ModelError(what, f"it has {found}", mend(name))
    return tuple(_required({name: value}, "longrope", name) for value in values)


_SAME: dict[str, str] = {"su": "longrope"}
"""Older names of a type."""

_KINDS: dict[str, Callable[[Mapping[str, Any], float, int, int], RopeSpec]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
