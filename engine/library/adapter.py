"""Adapter: a module as a build sees it, called with tensors by name, giving tensors in a row."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vcc.cache.errors import CompileError
from vcc.engine.library.arguments import Variant
from vcc.engine.library.outputs import flattened
from vcc.engine.torch_shim.module_parts import writes_to

_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain_calls() -> Iterator[None]:
    """Let decorated modules compute by their own forward in the body."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def calls_plainly() -> bool:
    """Whether a decorated module must compute by its own forward: it is being traced."""
    return _PLAIN.get() or torch.compiler.is_compiling()


@dataclass(slots=True)
class _Found:
    """What a trace saw; an object of its own, since an export gives attributes their old values."""

    outputs: Mapping[str, Any] | None = None


class Adapter(nn.Module):
    """A module with the fixed arguments of a variant.

    Inputs that the forward changes are returned behind its outputs, so that a call can bring the
    changes to its own tensors: compiled code works on copies.

    Args:
        module: whose forward it is.
        variant: names of the tensors, and the other arguments.
    """

    def __init__(self, module: nn.Module, variant: Variant) -> None:
        super().__init__()
        self.module = module
        self._fixed = dict(variant.fixed)
        self._found = _Found()

        def forward(**inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self._run(inputs)

        kind = inspect.Parameter.KEYWORD_ONLY
        named = [inspect.Parameter(shape.name, kind) for shape in variant.shapes]
        # torch.export reads the names of the inputs here.
        forward.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
        self.forward = forward

    @property
    def told(self) -> dict[str, Any]:
        """What the trace found out, for the manifest: `outputs` with their form."""
        return {} if self._found.outputs is None else {"outputs": dict(self._found.outputs)}

    def to(self, *_: Any, **__: Any) -> Adapter:
        """Itself: a module of a program keeps its dtypes and its place."""
        return self

    def _run(self, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        computed = _computed_buffers(self.module)
        before = _versions({**inputs, **computed})
        with plain_calls():
            result = self.module(**inputs, **self._fixed)
        after = _versions({**inputs, **computed})
        for name in computed:
            if after[name] != before[name]:
                raise _not_kept(name)
        changed = [name for name in inputs if after[name] != before[name]]
        leaves, tree = flattened(result)
        self._found.outputs = {"tree": tree, "changed": changed}
        return (*leaves, *(inputs[name] for name in changed))


def _computed_buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """Buffers outside the state dict: an artifact has copies of them."""
    kept = module.state_dict(keep_vars=True).keys()
    return {name: one for name, one in module.named_buffers() if name not in kept}


def _versions(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    return {name: writes_to(one) for name, one in tensors.items()}


def _not_kept(name: str) -> CompileError:
    return CompileError(
        f"the forward writes to {name}",
        "it is no part of the state_dict(), so an artifact has a copy of it as a constant",
        "register it with persistent=True: such buffers are written in place",
    )
