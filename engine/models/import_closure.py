"""The source files a module would load, found by reading import statements instead of importing."""

from __future__ import annotations

import ast
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from vcc.cache.errors import ModelError

_NEVER = {"torch", "vcc", "__future__"}
"""torch and vcc enter a key by fields of their own."""


@dataclass(frozen=True, slots=True)
class Closure:
    """What a module depends on.

    Attributes:
        files: source bytes by module name, for modules of the project itself.
        versions: version by name, for packages installed in site-packages.
    """

    files: Mapping[str, bytes]
    versions: Mapping[str, str]


def closure_of(module: str, root: Path) -> Closure:
    """Follow the imports of a module.

    Args:
        module: dotted name.
        root: directory searched before `sys.path`.

    Raises:
        ModelError: the module is not there, or a file is not readable Python source.
    """
    walk = _Walk([str(root), *(entry for entry in sys.path if entry)])
    if walk.find(module) is None:
        raise ModelError(
            f"no module named {module}",
            "it is neither in the working directory nor on Python's path",
            "run vcc where the module can be imported, or install its package",
        )
    walk.visit(module)
    return Closure(walk.files, walk.versions)


@dataclass(slots=True)
class _Walk:
    path: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    installed: tuple[Path, ...] = field(default_factory=lambda: _installed())

    def find(self, module: str) -> ModuleSpec | None:
        """The spec of a module, found without importing its parents."""
        places: list[str] | None = self.path
        spec = None
        for name in _prefixes(module):
            if places is None:
                return None
            spec = PathFinder.find_spec(name, places)
            if spec is None:
                return None
            found = spec.submodule_search_locations
            places = None if found is None else list(found)
        return spec

    def visit(self, module: str) -> None:
        """Take in a module, its parent packages, and what they import."""
        waiting = list(_prefixes(module))
        while waiting:
            name = waiting.pop()
            if name in self.seen or _top(name) in sys.stdlib_module_names | _NEVER:
                continue
            self.seen.add(name)
            spec = self.find(name)
            if spec is not None and spec.origin is not None:
                waiting.extend(self._take(name, spec, Path(spec.origin)))

    def _take(self, name: str, spec: ModuleSpec, file: Path) -> Iterator[str]:
        """Record one module; what it imports."""
        if any(place in file.resolve().parents for place in self.installed):
            self.versions[f"{_top(name)}.version"] = _version(_top(name))
            return
        text = self.files[name] = _read(name, file)
        if file.suffix != ".py":
            return
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        for imported in _imports(_parse(name, file, text), package):
            yield from _prefixes(imported)


def _prefixes(module: str) -> Iterator[str]:
    """`a.b.c` -> `a`, `a.b`, `a.b.c`."""
    parts = module.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def _top(module: str) -> str:
    return module.partition(".")[0]


def _installed() -> tuple[Path, ...]:
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    places.update(site.getsitepackages())
    places.add(site.getusersitepackages())
    return tuple(Path(place).resolve() for place in places)


def _version(top: str) -> str:
    """Version of the distribution that holds a top-level package."""
    from importlib import metadata  # 10 ms, and a checkpoint has no sources

    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(top, ())
        return ",".join(f"{name} {metadata.version(name)}" for name in sorted(set(names))) or "?"


def _read(name: str, file: Path) -> bytes:
    if file.suffix == ".pyc":
        raise ModelError(
            f"the source of {name} is not there", f"only {file.name} is", "a key needs its source"
        )
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the source of {name}", str(error.strerror)) from error


def _parse(name: str, file: Path, text: bytes) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ModelError(f"{file.name} is not valid Python", str(error)) from error


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Every module that the tree may import; names that are no modules are found not to be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    kept = parts[: len(parts) - node.level + 1]
    return ".".join((*kept, node.module)) if node.module else ".".join(kept)
