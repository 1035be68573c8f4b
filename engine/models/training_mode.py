"""What a module does otherwise in training mode, in words: code is made for evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType

from torch import nn

MOST_NAMED = 4


def training_note(module: nn.Module) -> str:
    """Names the parts in training mode that evaluation mode changes; empty where there are none.

    A part counts if a method of its class reads `training`, as those of dropout and of batch
    normalisation do. `nn.Module` starts in training mode, so that alone says nothing.
    """
    found = [
        f"{name or 'the module'} ({type(one).__name__})"
        for name, one in module.named_modules()
        if one.training and any("training" in names for names in _read_by(type(one)))
    ]
    if not found:
        return ""
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return (
        "the factory gives a module in training mode, which runs in evaluation mode here: other in "
        f"{', '.join(found[:MOST_NAMED])}{more}; call .eval() in the factory if that is meant"
    )


def _read_by(kind: type) -> Iterator[tuple[str, ...]]:
    """Names that the methods of a class and of its bases use."""
    for one in kind.__mro__:
        if one is nn.Module:
            return
        for value in vars(one).values():
            if isinstance(value, FunctionType):
                yield value.__code__.co_names
