"""JSON to configuration values: aliases, readers per field, and errors that suggest a name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from vcc.cache.errors import ConfigError

from .checks import suggestion
from .plain import to_json
from .spellings import (
    BACKENDS,
    COMPILE_MODES,
    GRAPH_MODES,
    LEVELS,
    choose,
    choose_dtype,
    choose_kv_dtype,
)
from .types import (
    ArenaConfig,
    CompilationConfig,
    DimRange,
    DynamicShapes,
    ModelConfig,
    ParallelConfig,
    PassConfig,
)

__all__ = ["as_config", "parse_config", "parse_model", "parse_parallel", "to_json"]

MAX_TEXT = 1 << 20
"""Largest JSON text read, in characters."""

Value = TypeVar("Value")
Reader = Callable[[str, Any], Any]

ALIASES: Mapping[type, Mapping[str, str]] = {
    CompilationConfig: {
        "compilation_mode": "mode",
        "compile_mode": "mode",
        "optimization_level": "level",
        "optimisation_level": "level",
        "cudagraph_mode": "cuda_graph_mode",
        "graph_mode": "cuda_graph_mode",
        "cudagraph_capture_sizes": "capture_sizes",
        "cuda_graph_sizes": "capture_sizes",
        "max_cudagraph_capture_size": "max_capture_size",
        "compile_ranges_endpoints": "compile_ranges",
        "compile_ranges_split_points": "compile_ranges",
        "inductor_compile_config": "inductor_config",
        "dynamic_shapes_config": "dynamic_shapes",
    },
    ModelConfig: {"model": "source", "quantization": "quantisation"},
    ParallelConfig: {
        "tensor_parallel_size": "tp",
        "expert_parallel_size": "ep",
        "data_parallel_size": "dp",
    },
}

ELSEWHERE: Mapping[str, str] = {
    "cache_dir": "the place of the cache is --cache-dir or VCC_CACHE_DIR",
    "compile_cache_save_format": "vcc has one artifact format",
    "cudagraph_copy_inputs": "a static step always has inputs of its own",
    "cudagraph_num_of_warmups": "vcc graphs need no warm-up",
    "full_cuda_graph": 'write "cuda_graph_mode": "full"',
    "use_cudagraph": 'write "cuda_graph_mode": "none" to switch graphs off',
    "use_inductor": 'write "backend": "eager" or "inductor"',
}
"""vLLM fields that vcc expresses in another way."""


def parse_config(raw: str | Mapping[str, Any] | None) -> CompilationConfig:
    """Read a compilation configuration from JSON text or a mapping; None gives all unset.

    Raises:
        ConfigError: bad JSON, an unknown or repeated field, or a bad value.
    """
    return _read("", CompilationConfig, _mapping("compilation config", raw))


def as_config(said: CompilationConfig | Mapping[str, Any] | None) -> CompilationConfig:
    """A configuration as programs give it: itself, or its fields; errors as in `parse_config`."""
    return said if isinstance(said, CompilationConfig) else parse_config(said)


def parse_model(raw: str | Mapping[str, Any]) -> ModelConfig:
    """Read a `ModelConfig` from JSON text or a mapping; errors as in `parse_config`."""
    return _read("", ModelConfig, _mapping("model config", raw))


def parse_parallel(raw: str | Mapping[str, Any] | None) -> ParallelConfig:
    """Read a `ParallelConfig` from JSON text or a mapping; errors as in `parse_config`."""
    return _read("", ParallelConfig, _mapping("parallel config", raw))


def _mapping(what: str, raw: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if raw is None:
        return {}
    value = _decode(what, raw) if isinstance(raw, str) else raw
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be a JSON object", f"got {type(value).__name__}")
    return value


def _decode(what: str, text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise ConfigError(f"{what} is too long", f"{len(text)} characters, at most {MAX_TEXT}")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{what} is not valid JSON",
            f"{error.msg} at line {error.lineno} column {error.colno}",
            'write for example \'{"cuda_graph_mode": "full"}\'',
        ) from None
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply") from None
    except ValueError as error:
        # An integer with more digits than Python converts.
        raise ConfigError(f"{what} holds a value that cannot be read", str(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ConfigError(f'"{name}" is given twice', "in one JSON object")
        found[name] = value
    return found


def _no_constant(text: str) -> Any:
    raise ConfigError(f"{text} is no JSON number")


def _read(label: str, kind: type[Value], raw: Mapping[str, Any]) -> Value:
    """Build `kind` from a mapping; `label` is the path of the mapping, empty at the top."""
    readers, aliases = READERS[kind], ALIASES.get(kind, {})
    values: dict[str, Any] = {}
    for name, value in raw.items():
        field = aliases.get(name, name)
        if field not in readers:
            raise _unknown(label, name, kind)
        if field in values:
            raise ConfigError(f'"{field}" is given twice', f'"{name}" is another name for it')
        path = f"{label}.{field}" if label else field
        values[field] = readers[field](path, value)
    return kind(**values)


def _unknown(label: str, name: str, kind: type) -> ConfigError:
    noun = "pass" if kind is PassConfig else "field"
    where = f" in {label}" if label and noun == "field" else ""
    known = (*READERS[kind], *ALIASES.get(kind, {}))
    close = suggestion(str(name), known).split("? known")[0]
    listed = f"known: {', '.join(READERS[kind])}"
    hint = f"{close}? {listed}" if close.startswith("did you mean") else listed
    if kind is CompilationConfig and name in ELSEWHERE:
        hint = ELSEWHERE[name]
    return ConfigError(f'unknown {noun} "{name}"{where}', "", hint)


def _choice(spellings: Mapping[str, Any]) -> Reader:
    return lambda field, raw: choose(field, raw, spellings)


def _as_is(field: str, raw: Any) -> Any:
    return raw


def _list(field: str, raw: Any) -> Any:
    if isinstance(raw, list):
        return tuple(raw)
    return raw


def _options(field: str, raw: Any) -> Any:
    if isinstance(raw, Mapping):
        return tuple(sorted(raw.items()))
    if raw is None or isinstance(raw, tuple):
        return raw
    raise ConfigError(f"{field} must be an object", f"got {raw!r} ({type(raw).__name__})")


def _range(field: str, raw: Any) -> Any:
    if isinstance(raw, (list, tuple)) and len(raw) == 2:
        return DimRange(*raw)
    if isinstance(raw, list):
        raise ConfigError(f"{field} must be [smallest, largest]", f"got {len(raw)} numbers")
    return _nested(DimRange)(field, raw)


def _nested(kind: type) -> Reader:
    def read(field: str, raw: Any) -> Any:
        if isinstance(raw, kind):
            return raw
        if not isinstance(raw, Mapping):
            raise ConfigError(f"{field} must be an object", f"got {raw!r} ({type(raw).__name__})")
        return _read(field, kind, raw)

    return read


READERS: Mapping[type, Mapping[str, Reader]] = {
    PassConfig: {item.name: _as_is for item in fields(PassConfig)},
    DimRange: {"min": _as_is, "max": _as_is},
    DynamicShapes: {"tokens": _range, "seqs": _range},
    ArenaConfig: {"enabled": _as_is},
    CompilationConfig: {
        "level": _choice(LEVELS),
        "mode": _choice(COMPILE_MODES),
        "backend": _choice(BACKENDS),
        "cuda_graph_mode": _choice(GRAPH_MODES),
        "pass_config": _nested(PassConfig),
        "user_passes": _list,
        "splitting_ops": _list,
        "use_inductor_graph_partition": _as_is,
        "compile_sizes": _list,
        "compile_ranges": _list,
        "capture_sizes": _list,
        "cudagraph_specialize_lora": _as_is,
        "max_capture_size": _as_is,
        "custom_ops": _list,
        "inductor_config": _options,
        "dynamic_shapes": _nested(DynamicShapes),
        "arena": _nested(ArenaConfig),
    },
    ModelConfig: {
        "source": _as_is,
        "revision": _as_is,
        "dtype": choose_dtype,
        "kv_cache_dtype": choose_kv_dtype,
        "quantisation": _as_is,
        "max_model_len": _as_is,
        "max_num_seqs": _as_is,
        "max_num_batched_tokens": _as_is,
        "block_size": _as_is,
        "enable_lora": _as_is,
        "max_loras": _as_is,
        "max_lora_rank": _as_is,
        "lora_target_modules": _list,
    },
    ParallelConfig: {"tp": _as_is, "ep": _as_is, "dp": _as_is},
}
