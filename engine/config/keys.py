"""From a resolved configuration to key entries: labelled, canonical, path-free text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from vcc.cache.errors import ConfigError

from .fields import PARTS
from .plain import canonical, plain
from .target import Target
from .types import CompilationConfig, ModelConfig, ParallelConfig

PREFIXES: dict[type, str] = {
    CompilationConfig: "config",
    ModelConfig: "model",
    ParallelConfig: "parallel",
}


def key_entries(config: Any, part: str) -> tuple[tuple[str, str], ...]:
    """The (label, text) pairs that a resolved configuration adds to one key part.

    Args:
        config: CompilationConfig, ModelConfig or ParallelConfig with every field resolved.
            Labels are `config.mode`, `config.pass_config.eliminate_noops`, `model.dtype`, …
        part: "code", "plan", or "none" for what stays out of both.

    Raises:
        ConfigError: unknown part or type.
    """
    if part not in PARTS:
        raise ConfigError(f'unknown key part "{part}"', "", f"known: {', '.join(PARTS)}")
    if isinstance(config, Target):
        # Code is made for one target, so all of it counts.
        return (("target", str(config)),) if part == "code" else ()
    prefix = PREFIXES.get(type(config))
    if prefix is None:
        raise ConfigError(f"{type(config).__name__} has no key entries")
    return tuple(sorted(_walk(prefix, config, part)))


def key_fields(kind: type) -> tuple[tuple[str, str, str], ...]:
    """(field, key part, why) of every field of a configuration type, for docs and tests."""
    return tuple((item.name, item.metadata["key"], item.metadata["why"]) for item in fields(kind))


def _walk(label: str, config: Any, part: str) -> Iterator[tuple[str, str]]:
    for item in fields(config):
        value = getattr(config, item.name)
        if item.metadata["key"] != part or (item.metadata["quiet"] and value is None):
            continue
        if is_dataclass(value):
            yield from _walk(f"{label}.{item.name}", value, part)
        elif item.metadata["json"] == "object":
            yield f"{label}.{item.name}", canonical(dict(value or ()))
        else:
            yield f"{label}.{item.name}", _text(value)


def _text(value: Any) -> str:
    return str(plain(value)) if isinstance(value, Enum) else canonical(plain(value))
