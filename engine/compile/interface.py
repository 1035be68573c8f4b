"""CompilerInterface: who turns a piece into code, and what that adds to keys and artifacts.

An implementation is a value of this module's table. It is read where keys are made, so nothing here
imports torch before code is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vcc.engine.compile.eager import EagerCompiler
from vcc.engine.compile.inductor import InductorCompiler
from vcc.engine.config.modes import Backend

if TYPE_CHECKING:
    from vcc.engine.compile.piece_code import PieceCode
    from vcc.engine.config.target import Target
    from vcc.engine.request import Settled
    from vcc.engine.torch_shim.aoti_runner import RunPiece
    from vcc.engine.types import Piece


class CompilerInterface(Protocol):
    """Turns pieces into code for the CPU, each in a process of its own.

    Attributes:
        name: of the back end, as configurations say it.
        suffix: of the blob that holds the code of a piece.
        calls_cxx: whether a C++ compiler makes the code: its version is then in the key.
        by_range: whether the code of a graph depends on the range of its sizes.
    """

    name: str
    suffix: str
    calls_cxx: bool
    by_range: bool

    def factors(self, target: Target, options: Mapping[str, Any]) -> dict[str, str]:
        """Entries of the code key that say which code this compiler makes of a piece.

        Args:
            target: what code is made for.
            options: Inductor's options of the user's and of the level.
        """

    def options(
        self, target: Target, options: Mapping[str, Any], cxx: str
    ) -> tuple[Mapping[str, Any], tuple[tuple[str, str], ...]]:
        """All settings of a build, and their labels and texts for identities of pieces.

        Args:
            target: what code is made for.
            options: as in `factors`.
            cxx: name and version of the C++ compiler, as the key has them; or empty.

        Raises:
            ConfigError: an option that does not exist.
            DeviceError: no code is made for this target.
        """

    def prepare(self, target: Target) -> None:
        """Import what workers need, before they are forked."""

    def compile(self, piece: Piece, options: Mapping[str, Any], folder: Path) -> PieceCode:
        """Make the code of a piece in a folder of a worker's own.

        Raises:
            CompileError: the piece holds what this compiler has no code for.
        """

    def load(self, code: Path) -> RunPiece:
        """Open what `compile` made, as a boot does, to check it."""


COMPILERS: Mapping[Backend, CompilerInterface] = {
    Backend.INDUCTOR: InductorCompiler(),
    Backend.EAGER: EagerCompiler(),
}
"""The compiler of each back end."""


def compiler_of(settled: Settled) -> CompilerInterface:
    """The compiler that makes a request's pieces."""
    return COMPILERS[settled.resolved.config.backend or Backend.INDUCTOR]
