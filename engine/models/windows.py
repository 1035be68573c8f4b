"""Which layers of a decoder attend to a sliding window: one rule for each family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import flag, mend, positive, whole

Config = Mapping[str, Any]

_FULL, _SLIDING = "full_attention", "sliding_attention"


def full_attention(config: Config, layers: int) -> tuple[int, ...]:
    """No layer slides, whatever `layer_types` says: transformers ignores it here."""
    _types(config, layers)
    return (0,) * layers


def every_layer_slides(config: Config, layers: int) -> tuple[int, ...]:
    """All layers share `sliding_window` (Mistral); null means full attention."""
    _refuse_mixed(config, layers)
    return (_window(config, 4096),) * layers


def window_if_given(config: Config, layers: int) -> tuple[int, ...]:
    """All layers share `sliding_window`, which is not there by default (Phi-3, Mixtral)."""
    _refuse_mixed(config, layers)
    return (_window(config, None),) * layers


def window_if_used(config: Config, layers: int) -> tuple[int, ...]:
    """All layers slide with `use_sliding_window` (Qwen3-MoE)."""
    _refuse_mixed(config, layers)
    used = flag(config, "use_sliding_window", False)
    return (_window(config, 4096) if used else 0,) * layers


def _refuse_mixed(config: Config, layers: int) -> None:
    if len(set(_types(config, layers) or ())) > 1:
        name = (config.get("architectures") or ["this architecture"])[0]
        raise ModelError(
            f"layer_types that differ are not supported for {name}",
            "transformers ignores them for this architecture, so their meaning is not certain",
            "remove layer_types from config.json if all layers are alike",
        )


def upper_layers_slide(config: Config, layers: int) -> tuple[int, ...]:
    """`use_sliding_window`, then `layer_types` or layers from `max_window_layers` on (Qwen)."""
    window = _window(config, 4096) if flag(config, "use_sliding_window", False) else 0
    first = whole(config, "max_window_layers", 28)
    types = [_SLIDING if window and i >= first else _FULL for i in range(layers)]
    return _by_type(config, types, window, layers)


def lower_layers_alternate(config: Config, layers: int) -> tuple[int, ...]:
    """`use_sliding_window`, then `layer_types` or every other layer below one (Qwen2-MoE)."""
    window = _window(config, 4096) if flag(config, "use_sliding_window", False) else 0
    end = whole(config, "max_window_layers", 28)
    types = [_SLIDING if window and i % 2 == 0 and i < end else _FULL for i in range(layers)]
    return _by_type(config, types, window, layers)


def layers_without_rope_slide(config: Config, layers: int) -> tuple[int, ...]:
    """`use_sliding_window`, then `layer_types` or the layers without rope (SmolLM3)."""
    window = _window(config, None) if flag(config, "use_sliding_window", False) else 0
    rope = rope_layers(config, layers)
    types = [_FULL if roped or not window else _SLIDING for roped in rope]
    return _by_type(config, types, window, layers)


def rope_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Which layers have rope: `no_rope_layers` (1: has it), or all but every so many (SmolLM3)."""
    given = config.get("no_rope_layers")
    if given is None:
        every = positive(config, "no_rope_layer_interval", 4)
        given = [int((i + 1) % every != 0) for i in range(layers)]
    if not isinstance(given, list) or len(given) != layers or any(g not in (0, 1) for g in given):
        raise ModelError(
            "no_rope_layers does not fit the number of layers",
            f"it is {given!r:.80} for {layers} layers, one 0 or 1 for each is wanted",
            mend("no_rope_layers"),
        )
    return tuple(bool(one) for one in given)


def pattern_slides(config: Config, layers: int) -> tuple[int, ...]:
    """`layer_types`, or all but every sixth layer slide (Gemma 3)."""
    every = positive(config, "sliding_window_pattern", 6)
    types = [_SLIDING if (i + 1) % every else _FULL for i in range(layers)]
    return _by_type(config, types, _window(config, 4096), layers)


def alternate_layers_slide(config: Config, layers: int) -> tuple[int, ...]:
    """`layer_types`, or even layers slide and odd ones do not (Gemma 2)."""
    types = [_FULL if i % 2 else _SLIDING for i in range(layers)]
    return _by_type(config, types, _window(config, 4096), layers)


def _window(config: Config, default: int | None) -> int:
    """The window in tokens; 0 where it is null, or absent without a default."""
    given = config.get("sliding_window", default)
    if given is None:
        return 0
    size = whole(config, "sliding_window", default)
    if not size:
        raise ModelError(
            "sliding_window of config.json must be at least 1",
            "it is 0, with which a token would attend to nothing",
            "write null for full attention",
        )
    return size


def _types(config: Config, layers: int) -> list[str] | None:
    """`layer_types`, one known name for each layer; None where it is null or absent."""
    types = config.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        found = f"{len(types)} entries" if isinstance(types, list) else f"{types!r:.40}, no list,"
        raise ModelError(
            "layer_types does not fit the number of layers",
            f"it is {found} for {layers} layers",
            mend("layer_types", "num_hidden_layers"),
        )
    unknown = sorted({str(kind) for kind in types} - {_FULL, _SLIDING})
    if unknown:
        raise ModelError(
            f"layer type {unknown[0]!r:.40} is not supported",
            "layer_types of config.json names it",
            f"supported: {_FULL}, {_SLIDING}",
        )
    return types


def _by_type(config: Config, default: list[str], window: int, layers: int) -> tuple[int, ...]:
    types = _types(config, layers) or default
    if not window and _SLIDING in types:
        raise ModelError(
            "layer_types names sliding_attention but no sliding window is set",
            "sliding_window is null, or use_sliding_window is false",
            mend("sliding_window", "layer_types"),
        )
    return tuple(0 if kind == _FULL else window for kind in types)
