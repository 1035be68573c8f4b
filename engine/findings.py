"""A line of doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "absent", "failed"]
"""`absent`: something works without it, and the hint says what to do to have it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    state: State
    what: str
    hint: str = ""
