"""The values that the build stages hand to each other, in the order of the flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule

from vcc.engine.graphs.program import Program, Role


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One input of a traced graph; `target` is the parameter or constant it stands for."""

    name: str
    role: Role
    target: str


@dataclass(frozen=True, slots=True)
class Traced:
    """One graph of the whole step: not functionalised, parameters lifted to placeholders."""

    graph: GraphModule
    placeholders: tuple[Placeholder, ...]
    ranges: Mapping[str, tuple[int, int]]
    constants: Mapping[str, torch.Tensor]
    notes: tuple[str, ...] = ()
    """What whoever asked for the trace should know of it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a pass takes off one step of the trace's example sizes.

    Attributes:
        bytes: memory traffic and copies that are no longer made.
        launches: kernels or calls that are no longer made.
    """

    bytes: int = 0
    launches: int = 0

    def __add__(self, other: Saved) -> Saved:
        return Saved(self.bytes + other.bytes, self.launches + other.launches)


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did.

    Attributes:
        name, version: of the pass.
        matches: rewrites made.
        refused: near-matches that were left, each with the reason.
        skipped: why it did not run at all; empty when it did.
        saved: what its rewrites save.
        needs: operators that the result calls.
    """

    name: str
    version: str
    matches: int
    refused: tuple[str, ...] = ()
    skipped: str = ""
    saved: Saved = Saved()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """A traced graph after the passes, with their reports."""

    traced: Traced
    reports: tuple[PassReport, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Geometry of a piece's argument: dense row-major, sizes as canonical expressions."""

    dtype: torch.dtype
    shape: tuple[object, ...]
    device: torch.device


@dataclass(frozen=True, slots=True)
class PieceSymbol:
    """A size of a piece under its canonical name, with inclusive range and hint."""

    name: str
    low: int
    high: int
    hint: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One unique piece: its canonical graph takes inputs, then one buffer per output."""

    id: str
    graph: GraphModule
    arguments: tuple[TensorSpec, ...]
    outputs: int
    symbols: tuple[PieceSymbol, ...]
    identity: str


@dataclass(frozen=True, slots=True)
class Pieces:
    """The step program, its unique pieces, and how often each is called."""

    program: Program
    unique: tuple[Piece, ...]
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompiledPiece:
    """The code of one piece, its external-op table if any, and its golden.

    `suffix` is that of the code's blob: `.so` for a library, `.ops` for an operator list.
    """

    id: str
    library: bytes
    external_ops: bytes | None
    golden: bytes | None
    seconds: float
    notes: tuple[str, ...] = field(default=())
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Environment variables that its worker read, with who read them."""
    suffix: str = ".so"
