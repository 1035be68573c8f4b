"""Where CUPTI and cuBLASLt may be: pip packages, a toolkit, the loader's own path; in this order.

The pip packages come first because torch uses them: a process has one CUPTI, and the cuBLASLt that
torch calls is the one whose choices are worth keeping.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vcc.engine.config.environment import read_environment

CUPTI = ("libcupti.so.13", "libcupti.so.12")
CUBLASLT = ("libcublasLt.so.13", "libcublasLt.so.12")

TOOLKIT_FOLDERS = ("lib64", "lib", "extras/CUPTI/lib64", "targets/x86_64-linux/lib")
DEFAULT_TOOLKIT = "/usr/local/cuda"

INSTALL: Mapping[tuple[str, ...], str] = {
    CUPTI: "pip install nvidia-cuda-cupti, or set CUDA_HOME to a CUDA toolkit",
    CUBLASLT: "pip install nvidia-cublas, or set CUDA_HOME to a CUDA toolkit",
}
"""What to do when none of the names is there."""


def candidates(names: Iterable[str], path: Iterable[str] | None = None) -> tuple[str, ...]:
    """Files and names to try in turn.

    Args:
        names: sonames, the newest first.
        path: folders of installed packages; `sys.path` by default.
    """
    folders = [Path(entry) for entry in (sys.path if path is None else path) if entry]
    home = Path(read_environment().cuda_home or DEFAULT_TOOLKIT)
    wanted = tuple(names)
    found = [
        *(str(file) for folder in folders for file in _packaged(folder, wanted)),
        *(str(file) for file in _in_toolkit(home, wanted)),
        *wanted,
    ]
    return tuple(dict.fromkeys(found))


def are_here(names: Iterable[str]) -> bool:
    """Whether any of the places is a file; what only the loader could find does not count."""
    return any(Path(place).is_file() for place in candidates(names))


def _packaged(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """`nvidia/cu13/lib/…` of CUDA 13 wheels and `nvidia/<library>/lib/…` of CUDA 12 wheels."""
    for name in names:
        yield from sorted(folder.glob(f"nvidia/*/lib/{name}"))


def _in_toolkit(home: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        files = (home / inner / name for inner in TOOLKIT_FOLDERS)
        yield from (file for file in files if file.is_file())
