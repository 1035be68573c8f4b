"""`--keep DIR`: the graph after each stage and the identity of each piece, as files to read."""

from __future__ import annotations

from pathlib import Path

from vcc.cache.errors import StorageError
from vcc.engine.types import Pieces, Traced


class Dump:
    """Writes numbered files into a folder; does nothing without one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._count = 0

    def graph(self, name: str, traced: Traced) -> None:
        """One graph as Python source: `00-traced.py`, `01-eliminate_noops.py`, …"""
        self._write(f"{self._count:02}-{name}.py", traced.graph.code)
        self._count += 1

    def pieces(self, pieces: Pieces) -> None:
        """Identity and source of every unique piece, and the step program."""
        for piece in pieces.unique:
            self._write(f"piece-{piece.id[:16]}.txt", piece.identity)
            self._write(f"piece-{piece.id[:16]}.py", piece.graph.code)

    def _write(self, name: str, text: str) -> None:
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"cannot keep intermediate files in {self._folder}", str(error)
            ) from error
