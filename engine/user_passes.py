"""Passes of the user's own by name: where they are defined and what their source is. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata

from vcc.cache.digest import Digest
from vcc.cache.errors import ConfigError, ModelError
from vcc.engine.config.checks import suggestion
from vcc.engine.config.plain import canonical
from vcc.engine.models.factory import FactoryRef, sources_of

GROUP = "vcc.passes"
"""Entry points of installed packages that name passes."""

SOURCE = "user_pass."
"""Labels of key entries: the digest of what a pass is written in."""


def entry_points() -> dict[str, str]:
    """Names of installed passes, with `module:NAME` of each."""
    return {one.name: one.value for one in metadata.entry_points(group=GROUP)}


def reference(name: str) -> FactoryRef:
    """Where a pass is defined.

    Args:
        name: an entry point of group `vcc.passes`, or `module:NAME`.

    Raises:
        ConfigError: neither.
    """
    text = name
    if ":" not in name:
        installed = entry_points()
        if name not in installed:
            known = suggestion(name, installed) if installed else "no package brings one"
            raise ConfigError(
                f'there is no installed pass "{name}"',
                f"no entry point of group {GROUP} has this name",
                f"{known}; a pass of a file is module:NAME",
            )
        text = installed[name]
    try:
        return FactoryRef.parse(text)
    except ModelError as error:
        raise ConfigError(f'"{name}" names no pass', error.what, "write module:NAME") from error


def source_entries(names: Sequence[str]) -> Mapping[str, str]:
    """A key entry for each pass: the digest of its module and of what that imports.

    Raises:
        ConfigError: a pass or its source cannot be found.
    """
    return {SOURCE + name: _digest(name) for name in names}


def _digest(name: str) -> str:
    try:
        sources = sources_of(reference(name))
    except ModelError as error:
        raise ConfigError(
            f"the source of pass {name} cannot be read", str(error), error.hint
        ) from error
    return Digest.of(canonical([list(pair) for pair in sources]).encode()).short
