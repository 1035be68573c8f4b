"""`--keep DIR`: the graph after each stage and the identity of each piece, as files to read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from vcc.cache.errors import StorageError
from vcc.engine.passes.script import script
from vcc.engine.types import Pieces, Traced


class Dump:
    """Writes numbered files into a folder; without one it keeps failures only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._count = 0
        self._within = ""

    def begin(self, sizes: str) -> None:
        """Graphs that follow are of this range of sizes; empty: of all."""
        self._within = f".{sizes}" if sizes else ""

    def graph(self, name: str, traced: Traced) -> None:
        """One graph as Python that runs: `00-traced.py`, `01-eliminate_noops.py`, …"""
        if self._folder is None:
            return
        text = script(traced, f"the graph after {name}")
        _write(self._folder / f"{self._count:02}-{name}{self._within}.py", text)
        self._count += 1

    def failed(self, name: str, traced: Traced, given: str) -> str:
        """What a failing pass was given, which reproduces the failure, and what it left.

        Without a folder to keep files in, one is made in the temporary folder and stays.
        """
        folder = self._folder or Path(tempfile.mkdtemp(prefix="vcc-failed-pass-"))
        before = script(traced, f"what {name} was given", given)
        _write(folder / f"{self._count:02}-before-{name}.py", before)
        left = folder / f"{self._count:02}-{name}-failed.txt"
        _write(left, f"{traced.graph.graph}\n")
        return str(left)

    def pieces(self, pieces: Pieces) -> None:
        """Identity and source of every unique piece, and the step program."""
        if self._folder is None:
            return
        for piece in pieces.unique:
            _write(self._folder / f"piece-{piece.id[:16]}.txt", piece.identity)
            _write(self._folder / f"piece-{piece.id[:16]}.py", piece.graph.code)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot keep intermediate files in {file.parent}", str(error)
        ) from error
