"""The C++ compiler that Inductor calls: is it there, and which one is it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata

import vcc
from vcc.cache.digest import Digest
from vcc.cache.errors import DeviceError
from vcc.engine.config.environment import read_environment
from vcc.engine.native import ABI_VERSION


@dataclass(frozen=True, slots=True)
class Compiler:
    """Name and version of the C++ compiler."""

    name: str
    version: str


def find_compiler() -> Compiler:
    """The compiler that CXX names, else g++ or clang++.

    Raises:
        DeviceError: there is none, or it does not answer.
    """
    asked = read_environment().cxx
    names = (asked,) if asked else ("g++", "clang++")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        raise DeviceError(
            "cannot compile pieces for the CPU",
            f"no C++ compiler: {' and '.join(names)} not found on PATH",
            "install one (Debian: apt install g++), or run eagerly with --compile none",
        )
    return Compiler(path.rsplit("/", 1)[-1], _version_of(path))


def _version_of(path: str) -> str:
    command = [path, "-dumpfullversion", "-dumpversion"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise DeviceError(
            f"the C++ compiler {path} does not work",
            said.strip()[:500],
            "set CXX to one that does, or run eagerly with --compile none",
        ) from error
    return done.stdout.strip()


def compiler_options(compiler: str) -> dict[str, object]:
    """Inductor's setting for a compiler that it would not find: left alone, it looks for g++.

    Args:
        compiler: name and version as the key has them.
    """
    name = compiler.partition(" ")[0]
    known = name == "g++" or read_environment().cxx
    return {} if known else {"cpp.cxx": (None, name)}


def versions() -> dict[str, str]:
    """Versions of everything that generates or runs code, without importing any of it."""
    found = {name: _version(name) for name in ("torch", "triton")}
    return {"vcc": vcc.__version__, "vcc.abi": str(ABI_VERSION), **found}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def engine_digest() -> str:
    """Digest of vcc's own build side: the decoder, the passes, the partition, the operators."""
    from pathlib import Path

    root = Path(__file__).resolve().parents[1]
    folders = ("compile", "graphs", "models", "ops", "partition", "passes", "torch_shim", "trace")
    files = sorted(p for folder in folders for p in (root / folder).rglob("*.py"))
    parts = [f"{p.relative_to(root)} {Digest.of(p.read_bytes())}\n" for p in files]
    return Digest.of("".join(parts).encode()).hex
