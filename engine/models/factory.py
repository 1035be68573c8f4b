"""`module:factory`: naming a function that returns an nn.Module, and finding its source files.

Torch-free, and nothing is imported here: a request must be known before any code of the model runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vcc.cache.digest import Digest
from vcc.cache.errors import ModelError
from vcc.engine.models.import_closure import closure_of

_REF = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


@dataclass(frozen=True, slots=True)
class FactoryRef:
    """A factory: an importable module and a name in it."""

    module: str
    attribute: str

    @classmethod
    def parse(cls, text: str) -> FactoryRef:
        """The inverse of `str`.

        Raises:
            ModelError: the text does not have the form `package.module:name`.
        """
        match = _REF.fullmatch(text)
        if match is None:
            raise ModelError(
                f"{text!r:.80} does not have the form package.module:name",
                "",
                "name a module and a function in it, as pooled:make",
            )
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


class Held(Protocol):
    """A module that is there already, as the library hands it to a build."""

    def eval(self) -> Any:
        """Itself, in evaluation mode."""

    @property
    def told(self) -> Mapping[str, Any]:
        """What a trace found out about it, for the manifest's `info`."""


@dataclass(frozen=True, slots=True)
class LiveRef(FactoryRef):
    """A module of this process instead of a factory; nothing is imported to get it.

    Attributes:
        held: the module.
    """

    held: Held = field(compare=False, repr=False)


def sources_of(ref: FactoryRef, root: Path | None = None) -> tuple[tuple[str, str], ...]:
    """(module, SHA-256 of its file) for the factory's module and what it imports, sorted.

    Modules of the standard library and of installed packages are left out; the distributions that
    are imported enter with their version instead. What is imported by a computed name is not seen.

    Args:
        ref: the factory.
        root: directory searched before `sys.path`; the working directory by default.

    Raises:
        ModelError: the module is not found, or one of the files is not readable Python source.
    """
    closure = closure_of(ref.module, root or Path.cwd())
    files = ((module, Digest.of(text).hex) for module, text in closure.files.items())
    return tuple(sorted((*files, *closure.versions.items())))
