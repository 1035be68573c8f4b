"""What a pass is: a name, a version that covers its source, and a function on a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch.fx import GraphModule

from vcc.cache.digest import Digest


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did: rewrites made, and near-matches left with the reason."""

    matches: int
    refused: tuple[str, ...] = ()


Rewrite = Callable[[GraphModule], Outcome]


@dataclass(frozen=True, slots=True)
class Pass:
    """A graph rewrite; `name` is its switch in `PassConfig`.

    The graph is rewritten in place: it belongs to the trace and nobody else holds it.
    """

    name: str
    rewrite: Rewrite
    version: str


def define(name: str, rewrite: Rewrite) -> Pass:
    """A pass whose version is the digest of the file that defines it."""
    source = Path(inspect.getfile(rewrite)).read_bytes()
    return Pass(name, rewrite, Digest.of(source).short)
