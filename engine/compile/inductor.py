"""The `inductor` back end: AOTInductor makes a shared library of each piece."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.engine.compile.piece_code import PieceCode
from vcc.engine.compile.toolchain import compiler_options
from vcc.engine.config.environment import read_environment
from vcc.engine.config.inductor_options import build_options, check_threads, option_pairs

if TYPE_CHECKING:
    from vcc.engine.config.target import Target
    from vcc.engine.torch_shim.aoti_runner import RunPiece
    from vcc.engine.types import Piece


class InductorCompiler:
    """A `CompilerInterface`."""

    name = "inductor"
    suffix = ".so"
    calls_cxx = True
    by_range = True

    def factors(self, target: Target, options: Mapping[str, Any]) -> dict[str, str]:
        """Every option, and the environment that its compilers read."""
        pairs = dict(option_pairs(build_options(target, options)))
        return pairs | {f"env.{name}": value for name, value in read_environment().key}

    def options(
        self, target: Target, options: Mapping[str, Any], cxx: str
    ) -> tuple[Mapping[str, Any], tuple[tuple[str, str], ...]]:
        """Those of the user over ours."""
        from vcc.engine.torch_shim.inductor import check_options, merged_options

        check_options(options)
        check_threads(options)
        merged = merged_options(target.arch, {**compiler_options(cxx), **options})
        return merged, option_pairs(merged)

    def prepare(self, target: Target) -> None:
        """Load Inductor once for all workers."""
        from vcc.engine.torch_shim.preload import preload_inductor

        preload_inductor(target.arch)

    def compile(self, piece: Piece, options: Mapping[str, Any], folder: Path) -> PieceCode:
        """One library, and its table of external operators where it has one."""
        from vcc.engine.partition.canonical import fake_arguments
        from vcc.engine.torch_shim.inductor import compile_library

        files = compile_library(piece.graph, fake_arguments(piece), options)
        library = next(file for file in files if file.name.endswith(".so"))
        tables = [f for f in files if f.suffix == ".json" and "metadata" not in f.name]
        return PieceCode(library, tables[-1] if tables else None)

    def load(self, code: Path) -> RunPiece:
        """Through AOTInductor's runner."""
        from vcc.engine.torch_shim.aoti_runner import open_piece

        return open_piece(code)
