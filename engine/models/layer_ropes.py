"""Which rope each layer of a decoder has: one rule for each family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcc.engine.models.rope import RopeSpec, rope_of, settings_in
from vcc.engine.models.windows import rope_layers

Config = Mapping[str, Any]

NO_ROPE = -1
"""In place of a rope's index: queries and keys of the layer are not rotated."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a rule needs besides the config.

    Attributes:
        head_dim: size of a head.
        windows: the layers' windows.
        theta: the architecture's default base.
        partial: whether heads may be rotated in part.
    """

    head_dim: int
    windows: tuple[int, ...]
    theta: float
    partial: bool

    def rope(self, config: Config, given: Config | None = None, theta: float = 0.0) -> RopeSpec:
        """One rope; `given` are its settings where they do not lie in the usual place."""
        return rope_of(config, self.head_dim, theta or self.theta, self.partial, given)


Ropes = tuple[tuple[RopeSpec, ...], tuple[int, ...]]
"""The distinct ropes, and for each layer the index of its own or NO_ROPE."""


def one_rope(config: Config, heads: HeadShape) -> Ropes:
    """All layers share one."""
    return (heads.rope(config),), (0,) * len(heads.windows)


def some_layers_roped(config: Config, heads: HeadShape) -> Ropes:
    """One, which the layers of `no_rope_layers` that are 0 do without (SmolLM3)."""
    roped = rope_layers(config, len(heads.windows))
    return (heads.rope(config),), tuple(0 if one else NO_ROPE for one in roped)


def long_rope(config: Config, heads: HeadShape) -> Ropes:
    """All layers share one; older configs of Phi-3 call `longrope` `yarn`."""
    given = dict(settings_in(config))
    for name in ("rope_type", "type"):
        if given.get(name) == "yarn":
            given[name] = "longrope"
    return (heads.rope(config, given),), (0,) * len(heads.windows)


LOCAL_THETA = 10000.0
"""Gemma 3's base in layers with a window, where the config does not say."""


def rope_by_window(config: Config, heads: HeadShape) -> Ropes:
    """Layers with a window have their own base and no scaling (Gemma 3).

    `rope_parameters` by layer type, or the older `rope_theta`, `rope_scaling` for all but the
    windowed layers and `rope_local_base_freq` for those.
    """
    by_type = settings_in({"rope_parameters": config.get("rope_parameters")})
    local, whole = (
        settings_in({"rope_scaling": by_type.get(name)})
        for name in ("sliding_attention", "full_attention")
    )
    # `rope_theta` beside them is the base of the other layers: it must not reach the windowed ones.
    local = local or {"rope_theta": _local_base(config)}
    whole = whole or settings_in({"rope_scaling": config.get("rope_scaling")})
    ropes = (
        heads.rope(config, whole),
        heads.rope({**config, "rope_theta": None}, local, LOCAL_THETA),
    )
    kinds = [1 if window else 0 for window in heads.windows]
    used = sorted(set(kinds))
    return tuple(ropes[kind] for kind in used), tuple(used.index(kind) for kind in kinds)


def _local_base(config: Config) -> Any:
    given = config.get("rope_local_base_freq")
    return LOCAL_THETA if given is None else given
