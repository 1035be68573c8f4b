"""Passes of the user's own by name: where they are defined and what their source is. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcc.engine import user_code
from vcc.engine.models.factory import FactoryRef
from vcc.engine.user_code import PASS

GROUP = PASS.group
"""Entry points of installed packages that name passes."""

SOURCE = "user_pass."
"""Labels of key entries: the digest of what a pass is written in."""


def entry_points() -> dict[str, str]:
    """Names of installed passes, with `module:NAME` of each."""
    return user_code.entry_points(PASS)


def reference(name: str) -> FactoryRef:
    """Where a pass is defined.

    Args:
        name: an entry point of group `vcc.passes`, or `module:NAME`.

    Raises:
        ConfigError: neither.
    """
    return user_code.reference(PASS, name)


def source_entries(names: Sequence[str]) -> Mapping[str, str]:
    """A key entry for each pass: the digest of its module and of what that imports.

    Raises:
        ConfigError: a pass or its source cannot be found.
    """
    return {SOURCE + name: user_code.source_digest(PASS, name) for name in names}
