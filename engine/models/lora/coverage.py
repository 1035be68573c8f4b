"""Which modules an adapter's configuration says that it changes, as PEFT decides it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ALL = "all-linear"
"""A word for every projection."""

MOST_LAYERS = 1 << 20

_PLAIN = re.compile(r"[\w.]{1,200}")
_LAYER = re.compile(r".*\.([^.]*)\.(\d+)\.")

Refused = Callable[[str], Exception]
"""Makes the error of why a configuration is refused."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The fields that choose modules.

    Attributes:
        targets: names, or ends of names, of modules that are changed; None where nothing is said.
        excluded: of modules that are not.
        layers: numbers of the layers that are changed; empty for all.
        lists: names of the lists of layers which `layers` counts in; empty for any.
    """

    targets: frozenset[str] | None
    excluded: frozenset[str] = frozenset()
    layers: frozenset[int] = frozenset()
    lists: frozenset[str] = frozenset()

    def lacks(self, module: str) -> str:
        """The field by which a module is not changed; empty if it is."""
        ends = _ends(module)
        if not self.excluded.isdisjoint(ends):
            return "exclude_modules"
        if self.targets is None or module in self.targets:
            return ""
        if self.targets.isdisjoint(ends):
            return "target_modules"
        if not self.layers:
            return ""
        found = _LAYER.match(module)
        if found is None or (self.lists and found[1] not in self.lists):
            return "layers_pattern" if self.lists else "layers_to_transform"
        return "" if int(found[2]) in self.layers else "layers_to_transform"


def read_coverage(found: Mapping[str, Any], refused: Refused) -> Coverage:
    """The fields of a configuration; whatever `refused` makes is raised for malformed ones."""
    targets = found.get("target_modules")
    layers = _layers(found.get("layers_to_transform"), refused)
    lists = _names("layers_pattern", found.get("layers_pattern"), refused, alone=True)
    if lists and not layers:
        raise refused("layers_pattern is set, and layers_to_transform is not")
    return Coverage(
        None if targets in (None, ALL) else _names("target_modules", targets, refused),
        _names("exclude_modules", found.get("exclude_modules"), refused),
        layers,
        lists,
    )


def _names(field: str, value: Any, refused: Refused, *, alone: bool = False) -> frozenset[str]:
    """Names of a list; PEFT takes a text for an expression, which is refused here."""
    if alone and isinstance(value, str):
        value = [value]
    if isinstance(value, str) and value:
        raise refused(f"{field} is the expression {value[:60]!r}: only lists of names are taken")
    if value and not isinstance(value, list):
        raise refused(f"{field} is {value!r:.40}, no list of names")
    for one in value or ():
        if not isinstance(one, str) or not _PLAIN.fullmatch(one):
            raise refused(f"{field} holds {one!r:.60}: only plain names of modules are taken")
    return frozenset(value or ())


def _layers(value: Any, refused: Refused) -> frozenset[int]:
    listed = [value] if type(value) is int else value or []
    if not isinstance(listed, list) or not all(
        type(one) is int and 0 <= one < MOST_LAYERS for one in listed
    ):
        raise refused(f"layers_to_transform is {value!r:.40}, no numbers of layers")
    return frozenset(listed)


def _ends(module: str) -> tuple[str, ...]:
    """The module's name and what follows each of its dots."""
    parts = module.split(".")
    return tuple(".".join(parts[at:]) for at in range(len(parts)))
