"""What a compiler leaves of one piece."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PieceCode:
    """Files in a worker's folder.

    Attributes:
        code: what is loaded.
        table: what the code needs beside it, such as a table of external operators; or None.
    """

    code: Path
    table: Path | None = None
