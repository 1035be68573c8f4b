"""What compiles: the C++ compiler that Inductor calls, and vcc's own build side."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.cache.errors import DeviceError
from vcc.engine.config.environment import read_environment
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.config.types import PassConfig
from vcc.engine.passes.version import rule_version


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
    return Compiler(path.rsplit("/", 1)[-1], _version_of(path, os.stat(path).st_mtime_ns))


@lru_cache(maxsize=8)
def _version_of(path: str, changed: int) -> str:
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


@lru_cache(maxsize=1)
def engine_digest() -> str:
    """Digest of vcc's own build side: the decoder, the passes, the partition, the operators.

    Read once: what a process has imported stays what it is.
    """
    root = Path(__file__).resolve().parents[1]
    folders = ("compile", "graphs", "models", "ops", "partition", "passes", "torch_shim", "trace")
    files = sorted(p for folder in folders for p in (root / folder).rglob("*.py"))
    parts = [f"{p.relative_to(root)} {Digest.of(p.read_bytes())}\n" for p in files]
    return Digest.of("".join(parts).encode()).hex


def pass_versions(config: PassConfig) -> tuple[tuple[str, str], ...]:
    """(name, version) of the passes that a configuration switches on, in order.

    Read without torch: `engine/passes/version.py`.
    """
    return tuple((r.name, rule_version(r)) for r in PASS_RULES if getattr(config, r.name))
