"""Which layers of a decoder attend to a sliding window: one rule for each family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import flag, whole

Config = Mapping[str, Any]

_FULL, _SLIDING = "full_attention", "sliding_attention"


def full_attention(config: Config, layers: int) -> tuple[int, ...]:
    """No layer slides."""
    return (0,) * layers


def every_layer_slides(config: Config, layers: int) -> tuple[int, ...]:
    """All layers share `sliding_window` (Mistral); null means full attention."""
    named = config.get("layer_types")
    if named is not None and (not isinstance(named, list) or len(set(map(str, named))) > 1):
        raise ModelError(
            "layer_types that differ are not supported for MistralForCausalLM",
            "transformers ignores them for this architecture, so their meaning is not certain",
        )
    return (_window(config, 4096),) * layers


def upper_layers_slide(config: Config, layers: int) -> tuple[int, ...]:
    """`use_sliding_window`, then `layer_types` or layers from `max_window_layers` on (Qwen)."""
    window = _window(config, 4096) if flag(config, "use_sliding_window", False) else 0
    first = whole(config, "max_window_layers", 28)
    types = [_SLIDING if window and i >= first else _FULL for i in range(layers)]
    return _by_type(config, types, window, layers)


def alternate_layers_slide(config: Config, layers: int) -> tuple[int, ...]:
    """`layer_types`, or even layers slide and odd ones do not (Gemma 2)."""
    types = [_FULL if i % 2 else _SLIDING for i in range(layers)]
    return _by_type(config, types, _window(config, 4096), layers)


def _window(config: Config, default: int) -> int:
    return (
        0
        if config.get("sliding_window", default) is None
        else whole(config, "sliding_window", default)
    )


def _by_type(config: Config, default: list[str], window: int, layers: int) -> tuple[int, ...]:
    types = config.get("layer_types") or default
    if not isinstance(types, list) or len(types) != layers:
        raise ModelError(
            "layer_types does not fit the number of layers",
            f"{len(types) if isinstance(types, list) else 0} entries for {layers} layers",
        )
    unknown = sorted({str(kind) for kind in types} - {_FULL, _SLIDING})
    if unknown:
        raise ModelError(
            f"layer type {unknown[0]!r} is not supported",
            hint=f"supported: {_FULL}, {_SLIDING}",
        )
    if not window and _SLIDING in types:
        raise ModelError(
            "layer_types names sliding_attention but no sliding window is set",
            "sliding_window is null, or use_sliding_window is false",
        )
    return tuple(0 if kind == _FULL else window for kind in types)
