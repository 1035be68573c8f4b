"""Names of torch and Triton that `engine/torch_shim` uses, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOTS = ("torch", "triton")
UNSTABLE = ("torch.fx.", "torch.export.", "triton.")
"""Public by name, but neither documented as stable nor kept as it is between releases."""

_TEXT = re.compile(r"(torch|triton)\.(\w+\.)*_\w+(\.\w+)*")


def is_unstable(name: str) -> bool:
    """Whether a release may change a dotted name without a word."""
    parts = name.split(".")
    hidden = any(part.startswith("_") and not part.startswith("__") for part in parts)
    return hidden or name.startswith(UNSTABLE)


def used_names(path: Path) -> frozenset[str]:
    """Dotted names below torch and triton that a file imports or reads, as far as it spells them.

    A name that an import binds is followed: `from torch._inductor import config` and
    `config.cpp.march` give `torch._inductor.config.cpp.march`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bound = dict(_imports(tree))
    found = {name for name in bound.values() if name.split(".")[0] in ROOTS}
    for node in ast.walk(tree):
        chain = _chain(node)
        if chain is not None and chain[0] in bound:
            found.add(".".join((bound[chain[0]], *chain[1:])))
    whole = {name for name in found if name.split(".")[0] in ROOTS}
    return frozenset(name for name in whole if not any(o.startswith(f"{name}.") for o in whole))


def named_modules(path: Path) -> frozenset[str]:
    """Private modules that a file names in text, such as those it imports by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return frozenset(t for t in texts if isinstance(t, str) and _TEXT.fullmatch(t))


def private_attributes(path: Path) -> frozenset[str]:
    """Private attributes that a file reads from objects other than its own and than modules."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bound = dict(_imports(tree))
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
            continue
        chain = _chain(node)
        ours = chain is not None and (chain[0] in ("self", "cls") or chain[0] in bound)
        if node.attr.startswith("_") and not ours:
            found.add(node.attr)
    return frozenset(found)


def resolved(name: str) -> Any:
    """The object of a dotted name.

    Raises:
        AttributeError: this release has none.
    """
    parts = name.split(".")
    value: Any = import_module(parts[0])
    for index, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = import_module(".".join(parts[:index]))
            except ImportError as error:
                raise AttributeError(f"{name}: no {part}") from error
    return value


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that imports bind anywhere in a file, with what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.asname is None:
                    yield one.name.split(".")[0], one.name.split(".")[0]
                    yield one.name, one.name
                else:
                    yield one.asname, one.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"


def _chain(node: ast.AST) -> tuple[str, ...] | None:
    """`a.b.c` as its parts."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *parts[::-1]) if isinstance(node, ast.Name) else None
