"""The package's source files as syntax trees, for tests that hold rules about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cli", "engine", "cache")


@dataclass(frozen=True)
class Module:
    """One Python file of the package, path relative to the repository."""

    path: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Dotted import name, such as `vcc.engine.native`."""
        parts = self.path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(("vcc", *parts))

    def at(self, node: ast.AST, text: str) -> str:
        """One line for a failure message."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {text}"


@cache
def modules() -> tuple[Module, ...]:
    """Every module of cli, engine and cache."""
    files = sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))
    return tuple(parse(str(path.relative_to(ROOT)), path.read_text()) for path in files)


def parse(path: str, text: str) -> Module:
    """A module from its text; used directly to show that a rule can fail."""
    return Module(path, text, ast.parse(text))


@cache
def imports(module: Module) -> tuple[tuple[ast.AST, str], ...]:
    """Every import as a dotted name, lazy ones too; `from a import b` gives `a.b`."""
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[tuple[ast.AST, str]]:
    package = module.name if module.path.endswith("__init__.py") else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join((*above, base)) if base else ".".join(above)
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def aliases(module: Module) -> dict[str, str]:
    """Local name -> dotted name that an import bound to it."""
    table: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                table[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                table[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return table


def dotted(node: ast.AST, table: dict[str, str]) -> str:
    """`torch._C._aoti` for an attribute chain, through import aliases; empty for another node."""
    if isinstance(node, ast.Name):
        return table.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, table)
        return f"{base}.{node.attr}" if base else ""
    return ""


@cache
def names(module: Module) -> tuple[tuple[ast.AST, str], ...]:
    """Every dotted name that the module reads or imports."""
    return tuple(_names(module))


def _names(module: Module) -> Iterator[tuple[ast.AST, str]]:
    table = aliases(module)
    yield from imports(module)
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and (name := dotted(node, table)):
            yield node, name


@cache
def calls(module: Module) -> tuple[tuple[ast.Call, str], ...]:
    """Every call with the dotted name of what is called."""
    return tuple(_calls(module))


def _calls(module: Module) -> Iterator[tuple[ast.Call, str]]:
    table = aliases(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield node, dotted(node.func, table)
