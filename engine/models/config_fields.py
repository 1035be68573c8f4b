"""Typed reads of one field of a parsed `config.json`, with errors that name the field."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import ModelError

LARGEST = 2**31 - 1
"""Sizes are int32 in every kernel."""


def mend(*names: str) -> str:
    """What helps against a value of config.json that cannot be: for the hint of an error."""
    return (
        f"mend {' and '.join(names)} in config.json, or take the file anew from where the model is"
    )


def whole(
    config: Mapping[str, Any], name: str, default: int | None = None, most: int = LARGEST
) -> int:
    """A size from 0 to `most`; null or absent means the default."""
    value = config.get(name)
    value = default if value is None else value
    if value is None:
        raise ModelError(
            f"config.json has no {name}", "the model cannot be built without it", mend(name)
        )
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ModelError(
            f"{name} of config.json is not a usable size",
            f"it is {value!r:.80}, wanted is a whole number of at most {most}",
            mend(name),
        )
    return value


def positive(
    config: Mapping[str, Any], name: str, default: int | None = None, most: int = LARGEST
) -> int:
    """A size from 1 to `most`."""
    value = whole(config, name, default, most)
    if not value:
        raise ModelError(f"{name} of config.json must be at least 1", "it is 0", mend(name))
    return value


def scalar(config: Mapping[str, Any], name: str, default: float) -> float:
    """A finite number of at least 0; null or absent means the default."""
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelError(
            f"{name} of config.json is not a number", f"it is {value!r:.80}", mend(name)
        )
    if not 0 <= value <= sys.float_info.max:  # nor a NaN
        why = f"it is {value!r:.80}, wanted is a finite number of at least 0"
        raise ModelError(f"{name} of config.json is out of range", why, mend(name))
    return float(value)


def flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    """A boolean; null or absent means the default."""
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        why = f"it is {value!r:.80}"
        raise ModelError(f"{name} of config.json is neither true nor false", why, mend(name))
    return value


def name_in(config: Mapping[str, Any], name: str, default: str, allowed: tuple[str, ...]) -> str:
    """A word out of a closed set; absent means the default, and null is none of them."""
    value = config.get(name, default)
    if value not in allowed:
        raise ModelError(
            f"{name} {value!r:.40} is not supported",
            "config.json asks for it, and nothing here computes it",
            f"supported: {', '.join(allowed)}",
        )
    return str(value)
