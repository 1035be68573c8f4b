"""Versions of everything that makes or runs code, read from what is installed without importing it.

CUDA and its libraries are those that torch was built for and brings: a wheel for the CPU has
`none`. A torch that was built against libraries of the system names its own commit for them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import vcc
from vcc.cache.manifest import FORMAT_VERSION
from vcc.engine.native import ABI_VERSION

NONE = "none"

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cublas": ("nvidia-cublas-cu{major}", "nvidia-cublas"),
    "cudnn": ("nvidia-cudnn-cu{major}", "nvidia-cudnn"),
    "nccl": ("nvidia-nccl-cu{major}", "nvidia-nccl"),
}
"""Distributions that hold a library, by its name; `major` is CUDA's."""


def versions() -> dict[str, str]:
    """Versions of everything that generates or runs code."""
    found = {name: installed(name) for name in ("torch", "triton")}
    return {"vcc": vcc.__version__, "vcc.abi": str(ABI_VERSION), **found, **cuda_versions()}


def installed(name: str) -> str:
    """The version of an installed distribution, else `none`."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return NONE


def cuda_versions() -> dict[str, str]:
    """CUDA, cuBLAS, cuDNN and NCCL as the installed torch has them."""
    build = torch_build()
    cuda = build.get("cuda", "")
    if not cuda:
        return dict.fromkeys(("cuda", *LIBRARIES), NONE)
    own = f"torch {build.get('git_version', '?')[:12]}"
    found = {name: _library(places, cuda) or own for name, places in LIBRARIES.items()}
    return {"cuda": cuda, **found}


def has_torch() -> bool:
    """Whether torch is there to be imported."""
    return _torch_spec() is not None


def _torch_spec() -> ModuleSpec | None:
    # Not importlib.util.find_spec: an entry of sys.modules would answer for what is installed.
    return PathFinder.find_spec("torch")


def torch_build() -> Mapping[str, str]:
    """What `torch/version.py` says of the build; empty where torch is not installed."""
    spec = _torch_spec()
    if spec is None or spec.origin is None:
        return {}
    file = Path(spec.origin).with_name("version.py")
    try:
        return _texts(file, file.stat().st_mtime_ns)
    except (OSError, ValueError, SyntaxError):
        return {}


@lru_cache(maxsize=4)
def _texts(file: Path, changed: int) -> Mapping[str, str]:
    """Texts that a module assigns to names, read and not run."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            found[target.id] = value.value
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _library(places: tuple[str, ...], cuda: str) -> str:
    names = (place.format(major=cuda.partition(".")[0]) for place in places)
    return next((found for name in names if (found := installed(name)) != NONE), "")


def formats() -> dict[str, str]:
    """Versions of the formats that an artifact is written in."""
    from vcc.engine.graphs.program import VERSION as PROGRAM
    from vcc.engine.graphs.table.layout import VERSION as TABLE

    major = FORMAT_VERSION.partition(".")[0]  # a later minor changes no code and is read
    return {"manifest": major, "program": str(PROGRAM), "table": str(TABLE)}


def short_version(version: str) -> str:
    """Major and minor of a version."""
    return ".".join(version.split(".")[:2])
