"""The digest that GPU results carry: of the sources that decide how fast and how right they are.

A result measured on other sources than these is stale; the suite says so (tests/conftest.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "benchmarks"
FOLDERS = ("csrc", "engine/graphs", "engine/runtime")
SUFFIXES = frozenset({".py", ".cpp", ".h", ".cu", ".cuh", ".txt"})


def sources(root: Path = ROOT) -> Iterator[Path]:
    """The files of the digest, in the order of their paths."""
    for folder in FOLDERS:
        files = (path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)
        yield from sorted(path for path in files if "__pycache__" not in path.parts)


def digest(root: Path = ROOT) -> str:
    """SHA-256 over path, size and bytes of every file."""
    found = hashlib.sha256()
    for path in sources(root):
        data = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def stale(results: Path = RESULTS, root: Path = ROOT) -> list[str]:
    """Names of the GPU results that were measured on other sources."""
    now = digest(root)
    return [path.name for path in sorted(results.glob("gpu-*.json")) if _told(path) != now]


def _told(path: Path) -> str:
    content = json.loads(path.read_text(encoding="utf-8"))
    return str(content.get("digest", ""))


if __name__ == "__main__":
    print(digest())
