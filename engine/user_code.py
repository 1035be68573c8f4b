"""Code of the user's own by name: where it is defined and what its source is. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from vcc.cache.digest import Digest
from vcc.cache.errors import ConfigError, ModelError
from vcc.engine.config.checks import suggestion
from vcc.engine.config.plain import canonical
from vcc.engine.models.factory import FactoryRef, sources_of


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object that a package or a file may bring.

    Args:
        word: what messages call one.
        group: entry points of installed packages that name them.
    """

    word: str
    group: str


PASS = Kind("pass", "vcc.passes")
LAYER = Kind("layer", "vcc.ops")


def entry_points(kind: Kind) -> dict[str, str]:
    """Names of installed ones, with `module:NAME` of each."""
    from importlib import metadata  # slow, and only names without a colon need it

    return {one.name: one.value for one in metadata.entry_points(group=kind.group)}


def reference(kind: Kind, name: str) -> FactoryRef:
    """Where one is defined.

    Args:
        kind: what is meant.
        name: an entry point of its group, or `module:NAME`.

    Raises:
        ConfigError: neither.
    """
    text = name
    if ":" not in name:
        installed = entry_points(kind)
        if name not in installed:
            known = suggestion(name, installed) if installed else "no package brings one"
            raise ConfigError(
                f'there is no installed {kind.word} "{name}"',
                f"no entry point of group {kind.group} has this name",
                f"{known}; a {kind.word} of a file is module:NAME",
            )
        text = installed[name]
    try:
        return FactoryRef.parse(text)
    except ModelError as error:
        what = f'"{name}" names no {kind.word}'
        raise ConfigError(what, error.what, "write module:NAME") from error


def source_digest(kind: Kind, name: str) -> str:
    """The digest of a module and of what it imports; nothing of it is run.

    Raises:
        ConfigError: it or its source cannot be found.
    """
    try:
        sources = sources_of(reference(kind, name))
    except ModelError as error:
        raise ConfigError(
            f"the source of {kind.word} {name} cannot be read", str(error), error.hint
        ) from error
    return Digest.of(canonical([list(pair) for pair in sources]).encode()).short
