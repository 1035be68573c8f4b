"""Weights: parameters made from a mapped checkpoint by their bindings.

A plain tensor of the wanted dtype is a view into the file mapping and costs no memory of its own;
anything else (fused, stacked, converted, misaligned) is written once into fresh memory. The ledger
says how many bytes went either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vcc.cache.errors import ModelError
from vcc.engine.models.bindings import EMBED, HEAD
from vcc.engine.models.expressions import (
    LEAST_DIMS,
    Binding,
    Cat,
    ChannelsLast,
    Each,
    Flat,
    FromTensor,
    Repeat,
    Rows,
    Stack,
    Tied,
    Transpose,
    no_channels,
)
from vcc.engine.models.mapped_file import MappedFiles
from vcc.engine.models.tensor_info import TensorInfo

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class WeightLedger:
    """Where the bytes of the weights are.

    Attributes:
        bytes_viewed: used in place from mapped files.
        bytes_copied: written to memory of the process.
    """

    bytes_viewed: int
    bytes_copied: int


def load_weights(
    bindings: Mapping[str, Binding],
    tensors: Mapping[str, TensorInfo],
    dtype: torch.dtype,
    exact: Mapping[str, torch.dtype] | None = None,
) -> tuple[dict[str, Tensor], WeightLedger]:
    """Evaluate every binding.

    Args:
        bindings: expressions by parameter name.
        tensors: the checkpoint's tensors by name; each must have a file.
        dtype: what floating-point weights are wanted as.
        exact: parameters that are wanted in another dtype, such as the fp32 scales of fp8 weights.
            Nothing is converted to fp8 or from it.

    Returns:
        The parameters by name, and the ledger. Tied parameters share one tensor, counted once.

    Raises:
        ModelError: a tensor is missing, a file no longer holds what its header said, or fp8 would
            be converted.
    """
    load = _Load(bindings, tensors, dtype, MappedFiles(), exact or {})
    load.check_stored_heads()
    weights = {name: load.parameter(name) for name in bindings}
    return weights, WeightLedger(load.viewed, load.copied)


@dataclass(slots=True)
class _Load:
    bindings: Mapping[str, Binding]
    tensors: Mapping[str, TensorInfo]
    dtype: torch.dtype
    files: MappedFiles
    exact: Mapping[str, torch.dtype]
    done: dict[str, Tensor] = field(default_factory=dict)
    viewed: int = 0
    copied: int = 0

    def parameter(self, name: str) -> Tensor:
        """The tensor of one parameter, made on first use."""
        if name not in self.done:
            self.done[name] = self._make(name, self.bindings[name])
        return self.done[name]

    def check_stored_heads(self) -> None:
        """A tied head that is stored as well must equal the embedding, or tying loses weights."""
        if self.bindings.get("head.weight") != Tied("embed.weight") or HEAD not in self.tensors:
            return
        if not torch.equal(self._mapped(HEAD), self._mapped(EMBED)):
            raise ModelError(
                "config.json and the weights disagree",
                f"tie_word_embeddings is true, but {HEAD} differs from {EMBED}",
                'set "tie_word_embeddings": false in config.json',
            )

    def _make(self, name: str, binding: Binding) -> Tensor:
        if isinstance(binding, Tied):
            return self.parameter(binding.name)
        if isinstance(binding, FromTensor):
            mapped, info = self._mapped(binding.name), self._info(binding.name)
            if self._wanted(name, mapped) == mapped.dtype and self.files.aliases(mapped, info):
                self.viewed += mapped.nbytes
                return mapped
        return self._copy(name, binding)

    def _copy(self, name: str, binding: Binding) -> Tensor:
        """Fresh memory, written once; conversion happens on the way."""
        like = self._first(binding)
        fresh = torch.empty(self._shape(binding), dtype=self._wanted(name, like))
        self._fill(fresh, binding)
        self.copied += fresh.nbytes
        return fresh

    def _fill(self, target: Tensor, binding: Binding) -> None:
        """Write an expression to where it belongs, without a copy between."""
        if isinstance(binding, Cat):
            at = 0
            for part in binding.parts:
                rows = self._shape(part)[0]
                self._fill(target.narrow(0, at, rows), part)
                at += rows
        elif isinstance(binding, (Stack, Each)):
            for row, part in zip(target, binding.parts, strict=True):
                self._fill(row, part)
        else:
            target.copy_(self._value(binding))

    def _shape(self, binding: Binding) -> tuple[int, ...]:
        if isinstance(binding, Cat):
            shapes = [self._shape(part) for part in binding.parts]
            return (sum(shape[0] for shape in shapes), *shapes[0][1:])
        if isinstance(binding, (Stack, Each)):
            return (len(binding.parts), *self._shape(binding.parts[0]))
        return tuple(self._value(binding).shape)

    def _first(self, binding: Binding) -> Tensor:
        """The first tensor of an expression, which decides the dtype."""
        while isinstance(binding, (Cat, Stack, Each)):
            binding = binding.parts[0]
        return self._value(binding)

    def _value(self, binding: Binding) -> Tensor:
        """The value of an expression, as views as far as possible."""
        if isinstance(binding, Tied):
            return self.parameter(binding.name)
        if isinstance(binding, FromTensor):
            return self._mapped(binding.name)
        if isinstance(binding, Rows):
            return self._value(binding.source)[binding.start : binding.stop]
        if isinstance(binding, Transpose):
            return self._value(binding.source).t()
        if isinstance(binding, Flat):
            return self._value(binding.source).reshape(-1)
        if isinstance(binding, Repeat):
            return self._value(binding.source).expand(binding.count)
        if isinstance(binding, ChannelsLast):
            return channels_last(self._value(binding.source), str(binding))
        whole = torch.empty(self._shape(binding), dtype=self._first(binding).dtype)
        self._fill(whole, binding)
        return whole

    def _mapped(self, name: str) -> Tensor:
        return self.files.view(self._info(name))

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(
                f"no weights for {name}",
                "the checkpoint does not hold it",
                "download it again, or give the one of this model by --weights",
            )
        return info

    def _wanted(self, name: str, mapped: Tensor) -> torch.dtype:
        given, stored = self.exact.get(name), mapped.dtype
        wanted = given or (self.dtype if stored.is_floating_point else stored)
        if wanted != stored and FP8 in (wanted, stored):
            raise ModelError(
                f"{name} is {stored}, {wanted} is wanted", "fp8 is never converted: it has a scale"
            )
        return wanted


def channels_last(value: Tensor, what: str) -> Tensor:
    """[n, channels, *sizes] as a view [n, *sizes, channels].

    Raises:
        ModelError: it has no sizes behind channels; `what` is the expression that asks for it.
    """
    if value.dim() < LEAST_DIMS:
        raise no_channels(what, value.shape)
    return value.movedim(1, -1)
