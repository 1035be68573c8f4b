"""Configuration values as plain JSON values; the writer that `parse` reads back."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from typing import Any

from .target import Target


def plain(value: Any) -> Any:
    """A JSON value for a configuration value; fields that are None are left out.

    Integer enums are written by name (`VCC_COMPILE`, `O2`), other enums by value (`full`).
    """
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Target):
        return str(value)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if is_dataclass(value):
        pairs = ((item, getattr(value, item.name)) for item in fields(value))
        return {
            item.name: dict(one) if item.metadata.get("json") == "object" else plain(one)
            for item, one in pairs
            if one is not None
        }
    return value


def canonical(value: Any) -> str:
    """One JSON text per value: sorted keys, no spaces, non-ASCII kept."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def to_json(config: Any) -> str:
    """Canonical JSON of a configuration value; `parse_config` gives an equal value back."""
    return canonical(plain(config))
