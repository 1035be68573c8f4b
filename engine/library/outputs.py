"""The form of what a forward returns, as plain data: tensors by number in tuples, lists and dicts.

    tree = null | number | {"tuple": [tree…]} | {"list": [tree…]} | {"dict": [[key, tree]…]}

A stored artifact gives tensors in a row; its manifest has the tree. Nothing else is kept, so that
reading it back makes no object of a class that the data names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vcc.cache.errors import IntegrityError, ModelError

Tree = Any
"""As above; what is read back from a manifest is checked by `restored`."""

DEEPEST = 32
MOST = 4096
"""Limits of a tree that is read back: levels, and entries of one level."""


def flattened(value: object) -> tuple[list[torch.Tensor], Tree]:
    """The tensors of a result, and its tree.

    Raises:
        ModelError: it holds something that is no tensor, None, tuple, list or dict of texts.
    """
    leaves: list[torch.Tensor] = []
    return leaves, _tree(value, leaves)


def _tree(value: object, leaves: list[torch.Tensor]) -> Tree:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return len(leaves) - 1
    if type(value) in (tuple, list):
        items: Any = value
        return {type(value).__name__: [_tree(one, leaves) for one in items]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": [[key, _tree(one, leaves)] for key, one in value.items()]}
    raise ModelError(
        f"the module returns a {type(value).__name__}",
        "an artifact gives tensors, and tuples, lists and dicts of them",
        "return those; a number that depends on a size can be made of the tensor by its caller",
    )


def restored(tree: Tree, leaves: Sequence[torch.Tensor], depth: int = 0) -> Any:
    """What `flattened` took apart.

    Raises:
        IntegrityError: the tree has another form, or names a tensor that is not there.
    """
    if tree is None:
        return None
    if type(tree) is int and 0 <= tree < len(leaves):
        return leaves[tree]
    kind, items = _entries(tree) if depth < DEEPEST else ("", [])
    if kind in ("tuple", "list"):
        found = [restored(one, leaves, depth + 1) for one in items]
        return tuple(found) if kind == "tuple" else found
    if kind == "dict" and all(map(_is_pair, items)):
        return {key: restored(one, leaves, depth + 1) for key, one in items}
    raise IntegrityError("the form of the outputs is refused", "it is no tree", "rebuild it")


def _entries(tree: Tree) -> tuple[str, list[Any]]:
    """The kind of a branch and what is in it; nothing for what is none."""
    if isinstance(tree, dict) and len(tree) == 1:
        kind, items = next(iter(tree.items()))
        if isinstance(items, list) and len(items) <= MOST:
            return str(kind), items
    return "", []


def _is_pair(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)
