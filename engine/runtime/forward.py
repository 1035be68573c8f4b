"""ForwardRunner: a plain forward of any module on fixed memory, inputs checked once a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from vcc.cache.errors import UsageError
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.program import Program, Symbol, Value
from vcc.engine.runtime.binding import Binder
from vcc.engine.runtime.by_size import chosen
from vcc.engine.runtime.memory import StepMemory
from vcc.engine.runtime.turn import Turn
from vcc.engine.torch_shim.aoti_runner import OUTSIDE


class Forward(Protocol):
    """A plain forward: outputs by name for inputs by name."""

    def __call__(
        self, inputs: Mapping[str, torch.Tensor], *, copy: bool = False
    ) -> dict[str, torch.Tensor]:
        """Run once; see `ForwardRunner`."""
        ...


@dataclass(frozen=True, slots=True)
class ForwardRunner:
    """Runs a program whose inputs are the module's own.

    Args:
        program: the module's step.
        memory: where its values lie.
        binder: its calls.
        turn: keeps calls apart: they share the memory.
    """

    program: Program
    memory: StepMemory
    binder: Binder
    turn: Turn = field(default_factory=Turn)

    def __call__(
        self, inputs: Mapping[str, torch.Tensor], *, copy: bool = False
    ) -> dict[str, torch.Tensor]:
        """Run once.

        Args:
            inputs: a dense CPU tensor for each declared input, by name.
            copy: give new tensors; False gives views that the next call overwrites.

        Returns:
            Outputs by name.

        Raises:
            UsageError: an input is missing, unknown, or has another dtype or shape than declared;
                an index in it is outside of what it indexes; or another call is under way.
        """
        with self.turn.taken():
            found = self._run(inputs)
            return {name: one.clone() for name, one in found.items()} if copy else found

    def _run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        sizes = self._sizes(inputs)
        for value in self.program.of_role("input"):
            self.memory.view(value.name, sizes).copy_(inputs[value.name].detach())
        self._play(tuple(sizes.values()))
        outputs = self.program.outputs
        return {
            f"output_{index}": self.memory.view(name, sizes) for index, name in enumerate(outputs)
        }

    def _play(self, sizes: tuple[int, ...]) -> None:
        try:
            for call in self.binder.calls(sizes):
                call()
        except (IndexError, RuntimeError) as error:  # of a listed operator, of a compiled piece
            if isinstance(error, RuntimeError) and not str(error).startswith(OUTSIDE):
                raise
            raise UsageError(
                OUTSIDE,
                "a number in the inputs, or computed from them, has no place in its table",
                "--compile none runs the forward in eager mode, which names the line",
            ) from error

    def _sizes(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, int]:
        values = self.program.of_role("input")
        _check_names({value.name for value in values}, set(inputs))
        for value in values:
            _check_kind(value, inputs[value.name])
        sizes = {}
        for symbol in self.program.symbols:
            size = inputs[symbol.source].shape[symbol.dim]
            if not symbol.low <= size <= symbol.high:
                raise out_of_range(symbol, size, symbol.low, symbol.high)
            sizes[symbol.name] = size
        for value in values:
            _check_shape(value, inputs[value.name], sizes)
        return sizes


@dataclass(frozen=True, slots=True)
class RangedForward:
    """A forward with a program for each range of its one size.

    Args:
        runners: each with its range, ranges ascending, then exact sizes; over one memory, in turn.
    """

    runners: tuple[RangeRunner, ...]

    def __call__(
        self, inputs: Mapping[str, torch.Tensor], *, copy: bool = False
    ) -> dict[str, torch.Tensor]:
        """Run the program of the size that the inputs have; errors as in `ForwardRunner`."""
        first = self.runners[0].runner
        (symbol,) = first.program.symbols
        given = inputs.get(symbol.source)
        if not isinstance(given, torch.Tensor) or given.dim() <= symbol.dim:
            return first(inputs, copy=copy)  # which refuses it
        size = given.shape[symbol.dim]
        low, high = min(r.low for r in self.runners), max(r.high for r in self.runners)
        if not low <= size <= high:
            raise out_of_range(symbol, size, low, high)
        return chosen(self.runners, size).runner(inputs, copy=copy)


@dataclass(frozen=True, slots=True)
class RangeRunner:
    """A runner of the sizes from `low` to `high`."""

    low: int
    high: int
    runner: ForwardRunner


def out_of_range(symbol: Symbol, size: int, low: int, high: int) -> UsageError:
    """A size that the artifact was not compiled for."""
    return UsageError(
        f"dimension {symbol.dim} of {symbol.source} is {size}",
        f"the artifact serves {low} to {high}",
        "compile it with a wider range: --shape NAME=LOW-HIGHx…",
    )


def _check_names(wanted: set[str], given: set[str]) -> None:
    if wanted != given:
        raise UsageError(
            "the inputs are not those of the module",
            f"missing: {', '.join(sorted(wanted - given)) or 'none'}; "
            f"unknown: {', '.join(sorted(given - wanted)) or 'none'}",
        )


def _check_kind(value: Value, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor).__name__
        raise UsageError(
            f"input {value.name} is no tensor", f"it is a {kind}", "give torch.as_tensor(x)"
        )
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else f"of layout {tensor.layout}"
        raise UsageError(
            f"input {value.name} is {kind}", "the artifact takes plain rows", "give x.to_dense()"
        )
    if tensor.dtype != DTYPES[value.dtype] or tensor.device.type != "cpu":
        raise UsageError(
            f"input {value.name} is {tensor.dtype} on {tensor.device}",
            f"the artifact takes {value.dtype} on the CPU",
            f'give x.to("cpu", {DTYPES[value.dtype]})',
        )
    if tensor.dim() != len(value.shape):
        raise UsageError(
            f"input {value.name} has {tensor.dim()} dimensions", f"declared are {len(value.shape)}"
        )


def _check_shape(value: Value, tensor: torch.Tensor, sizes: Mapping[str, int]) -> None:
    wanted = [sizes[size] if isinstance(size, str) else size for size in value.shape]
    fixed = [(want, have) for want, have in zip(wanted, tensor.shape, strict=True)]
    if any(isinstance(want, int) and want != have for want, have in fixed):
        raise UsageError(
            f"input {value.name} has shape {list(tensor.shape)}", f"it must be {wanted}"
        )
