"""What this install has for each back end: native library, Triton, packages. No torch.

Nothing is imported: a package is judged by its metadata, and by whether its module can be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata, util

from vcc.engine import native
from vcc.engine.ops.backends import BACKENDS, Backend, Package, order_of


@dataclass(frozen=True, slots=True)
class Available:
    """What a choice knows of the install.

    Args:
        missing: (back end, why it cannot be used here).
        versions: (back end, version of the package that it calls).
    """

    missing: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()


EVERYTHING = Available()
"""An install that lacks nothing; what tests and layers without a choice assume."""


def available(platform: str, arch: str = "") -> Available:
    """Look at this install, for the back ends of one platform and one architecture of it."""
    found = [(name, *_look(BACKENDS[name], arch)) for name in order_of(platform)]
    return Available(
        missing=tuple((name, why) for name, why, _ in found if why),
        versions=tuple((name, version) for name, _, version in found if version),
    )


def _look(backend: Backend, arch: str) -> tuple[str, str]:
    """Why a back end cannot be used here, and the version of its package; either may be empty."""
    if backend.library and native.library(backend.library) is None:
        name = f"lib{backend.library}.so"
        return f"{name} was not built: no C++ compiler, or no torch, at install", ""
    if backend.cubins and backend.surface:
        from vcc.engine.ops.cuda import cubins

        why = cubins.missing(arch)
        return why, "" if why else cubins.version(arch)
    if missing := next(_not_there(backend.needs), ""):
        return f"{missing} is not installed: pip install {missing}", ""
    return _package(backend.package) if backend.package else ("", "")


def _package(package: Package) -> tuple[str, str]:
    name = package.distribution
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed: pip install {name}", ""
    if older(version, package.minimum):
        wanted = f'pip install --upgrade "{name}>={package.minimum}"'
        return f"{name} {version} is older than {package.minimum}: {wanted}", version
    top = sorted({module.partition(".")[0] for module in package.modules})
    if missing := next(_not_there(top), ""):
        return f"{name} {version} is installed without its module {missing}", version
    return "", version


def _not_there(modules: Iterable[str]) -> Iterator[str]:
    return (name for name in modules if util.find_spec(name) is None)


def older(version: str, minimum: str) -> bool:
    """Whether a version's numbers come before another's; what follows them is not compared."""
    return _numbers(version) < _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
