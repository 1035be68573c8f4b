"""How a configuration field enters the keys, carried in its dataclass metadata."""

from __future__ import annotations

from dataclasses import field
from typing import Any

CODE, PLAN, NONE = "code", "plan", "none"
PARTS = (CODE, PLAN, NONE)


def keyed(
    doc: str, *, default: Any = None, factory: Any = None, json: str = "", quiet: bool = False
) -> Any:
    """A field that is in the code key: the rule for every field without another marker.

    A `quiet` one adds no label where it is None, so that keys are those of before it was there.
    """
    return _field(doc, CODE, "changes compiled code", default, factory, json, quiet)


def planned(doc: str, why: str, *, default: Any = None) -> Any:
    """A field that is in the plan key only: it changes node tables but no compiled code."""
    return _field(doc, PLAN, why, default, None, "")


def unkeyed(doc: str, why: str, *, default: Any = None, factory: Any = None) -> Any:
    """A field in no key; `why` says what makes that safe."""
    return _field(doc, NONE, why, default, factory, "")


def _field(
    doc: str, key: str, why: str, default: Any, factory: Any, json: str, quiet: bool = False
) -> Any:
    metadata = {"doc": doc, "key": key, "why": why, "json": json, "quiet": quiet}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)
