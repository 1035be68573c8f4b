"""The `eager` back end: a piece is stored as the list of its operator calls, and run by torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.engine.compile.piece_code import PieceCode
from vcc.engine.graphs.op_list import VERSION

if TYPE_CHECKING:
    from vcc.engine.config.target import Target
    from vcc.engine.torch_shim.aoti_runner import RunPiece
    from vcc.engine.types import Piece


class EagerCompiler:
    """A `CompilerInterface`; options of Inductor mean nothing to it."""

    name = "eager"
    suffix = ".ops"
    calls_cxx = False
    by_range = False

    def factors(self, target: Target, options: Mapping[str, Any]) -> dict[str, str]:
        """The format of the lists."""
        return {"format.op_list": str(VERSION)}

    def options(
        self, target: Target, options: Mapping[str, Any], cxx: str
    ) -> tuple[Mapping[str, Any], tuple[tuple[str, str], ...]]:
        """None."""
        return {}, (("compiler", f"{self.name} {VERSION}"),)

    def prepare(self, target: Target) -> None:
        """Nothing: torch is there."""

    def compile(self, piece: Piece, options: Mapping[str, Any], folder: Path) -> PieceCode:
        """Write the list."""
        from vcc.engine.compile.op_lists import op_list
        from vcc.engine.graphs.op_list import encode

        code = folder / f"made{self.suffix}"
        code.write_bytes(encode(op_list(piece.graph)))
        return PieceCode(code)

    def load(self, code: Path) -> RunPiece:
        """As a boot does."""
        from vcc.engine.runtime.op_list import open_op_list

        return open_op_list(code.read_bytes())
