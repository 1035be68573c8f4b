"""Make a piece's golden: run its graph eagerly in fp32, bound the error, check the library."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Interpreter

from vcc.cache.errors import CompileError
from vcc.engine.compile.fakes import check_fakes
from vcc.engine.compile.golden_filters import filters_of
from vcc.engine.graphs.drawn import draw_arguments, poison
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.expr import evaluate_all
from vcc.engine.graphs.golden import Argument, Array, Bound, Golden, errors, exceeds
from vcc.engine.torch_shim.aoti_runner import RunPiece
from vcc.engine.torch_shim.nodes import is_opaque, is_random, mutated_arguments, overload_name
from vcc.engine.types import Piece, TensorSpec

BUDGET = 1 << 30
"""Bytes that a golden's arguments and its largest fp32 copy may take in one worker."""

LOW_PRECISION = frozenset({torch.bfloat16, torch.float16})
NARROWER = {torch.float32: LOW_PRECISION, torch.float64: LOW_PRECISION | {torch.float32}}
"""What is made wide, by the type that it is made."""

FP8_TYPES = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
SIZES = (5, 3, 2, 4)
"""Sizes of the first symbols of a golden: small, and different from each other."""

ROUNDING = ("_quant", "scaled_experts")
"""In the names of operators that round to fp8 inside."""

FEWEST = 2
"""Values of an index in the smallest table: token types are 0 or 1."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why a piece has no golden."""

    reason: str


def make_golden(piece: Piece, run: RunPiece) -> Golden | Skipped:
    """The golden of a piece, after checking that its compiled library meets it.

    The bound follows the numbers rule: in fp32 1e-4 of the largest value, in a narrower dtype
    1.25 times the error of the eager piece in that dtype, and at least one unit in the last place
    of bf16, or of fp8 in a piece that quantises, at the largest value.

    Raises:
        CompileError: the compiled library does not compute what the graph says, or an operator
            gives something else than its fake says.
    """
    made = _drawn(piece)
    if isinstance(made, Skipped):
        return made
    golden, arguments = made
    _check(piece, run, arguments, golden.references, golden.bounds)
    return golden


def unchecked_golden(piece: Piece) -> Golden | Skipped:
    """The golden of a piece whose code cannot run here.

    Raises:
        CompileError: an operator gives something else than its fake says.
    """
    made = _drawn(piece)
    return made if isinstance(made, Skipped) else made[0]


def _drawn(piece: Piece) -> tuple[Golden, list[torch.Tensor]] | Skipped:
    if reason := _unsuited(piece):
        return Skipped(reason)
    sizes = sizes_of(piece)
    filters = filters_of(piece.graph)
    specs = tuple(_argument(*one, sizes, filters) for one in enumerate(piece.arguments))
    below = min(sizes.values(), default=2)
    refusals = []
    for limit in dict.fromkeys((below, FEWEST)):  # small tables have indices of their own
        arguments = draw_arguments(piece.id, specs, limit)
        check_fakes(piece.graph, arguments)
        try:
            references = _eager_wide(piece, arguments)
            bounds = tuple(_bounds(piece, arguments, references))
            if filters and _amplifies(piece, arguments, references, bounds):
                return Skipped("its layers amplify the rounding of fp32 beyond what is allowed")
        except Exception as error:
            refusals.append(str(error).strip()[:200])
            continue
        return Golden(specs, limit, references, bounds), arguments
    return Skipped(f"the model itself refuses drawn arguments: {refusals[0]}")


def sizes_of(piece: Piece) -> dict[str, int]:
    """The sizes at which a golden calls a piece, by symbol."""
    return {s.name: _size(s.low, s.high, n) for n, s in enumerate(piece.symbols)}


def _argument(
    index: int, spec: TensorSpec, sizes: Mapping[str, int], filters: Collection[int]
) -> Argument:
    symbolic = any(not isinstance(size, int) for size in spec.shape)
    shape = evaluate_all(spec.shape, sizes)
    terms = prod(shape[1:]) if index in filters else 0
    return Argument(NAMES[spec.dtype], shape, symbolic, terms)


def _size(low: int, high: int, index: int) -> int:
    return max(low, min(high, SIZES[index % len(SIZES)]))


def _unsuited(piece: Piece) -> str:
    nodes = piece.graph.graph.nodes
    if opaque := sorted({str(n.target) for n in nodes if is_opaque(n)}):
        return f"it holds {opaque[0]}, whose index arguments cannot be drawn"
    if chance := sorted({str(n.target) for n in nodes if is_random(n)}):
        return f"it holds {chance[0]}, whose result is random"
    need = golden_bytes(piece)
    if need > BUDGET:
        return f"its arguments would take {need >> 20} MiB, more than {BUDGET >> 20}"
    return ""


def golden_bytes(piece: Piece) -> int:
    """Bytes that the arguments of a piece's golden and the largest fp32 copy of one take."""
    arguments = sum(_bytes(spec, spec.dtype.itemsize) for spec in piece.arguments)
    return arguments + max((_bytes(spec, 4) for spec in piece.arguments), default=0)


def _bytes(spec: TensorSpec, width: int) -> int:
    fixed = [size if isinstance(size, int) else SIZES[0] for size in spec.shape]
    return int(np.prod(fixed, dtype=np.int64)) * width


class _Widened(Interpreter):
    """Runs a graph with every floating-point value of a narrower type in a wide one."""

    def __init__(self, graph: GraphModule, wide: torch.dtype) -> None:
        super().__init__(graph)
        self.wide = wide

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(target, _widen(args, self.wide), _widen(kwargs, self.wide))


def _widen(value: Any, wide: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(_widen(value.dtype, wide))
    if isinstance(value, torch.dtype):
        return wide if value in NARROWER[wide] else value
    if isinstance(value, (list, tuple)):
        return type(value)(_widen(item, wide) for item in value)
    if isinstance(value, dict):
        return {name: _widen(item, wide) for name, item in value.items()}
    return value


def _eager_wide(
    piece: Piece, arguments: list[torch.Tensor], wide: torch.dtype = torch.float32
) -> tuple[Array, ...]:
    first = len(arguments) - piece.outputs
    buffers = [_widened_copy(argument, wide) for argument in arguments[first:]]
    # A write in place must neither reach the drawn arguments nor a temporary that was widened.
    copies = _writes_inputs(piece)
    given = [_widened_copy(one, wide) if copies else one for one in arguments[:first]]
    _Widened(piece.graph, wide).run(*given, *buffers)
    return tuple(_array(buffer) for buffer in buffers)


def _widened_copy(value: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    return value.to(wide if value.is_floating_point() else value.dtype, copy=True)


def _amplifies(
    piece: Piece,
    arguments: list[torch.Tensor],
    references: Sequence[Array],
    bounds: Sequence[Bound],
) -> bool:
    """Whether right results in fp32 differ by more than a bound: many convolutions, one by one.

    fp64 shows it. Then another order of the same sums is no fault of the code.
    """
    try:
        exact = _eager_wide(piece, arguments, torch.float64)
    except Exception:  # an operator that has no fp64: the piece is held to its bounds as others are
        return False
    found = [errors(got, want) for got, want in zip(references, exact, strict=True)]
    return any(
        2 * maximum > bound.maximum or 2 * rms > bound.rms
        for (maximum, rms), bound in zip(found, bounds, strict=True)
    )


def _writes_inputs(piece: Piece) -> bool:
    """Whether anything but the buffers of the results may be written in place."""
    nodes = list(piece.graph.graph.nodes)
    buffers = [n for n in nodes if n.op == "placeholder"][len(piece.arguments) - piece.outputs :]
    return any(argument not in buffers for node in nodes for argument in mutated_arguments(node))


def _eager(piece: Piece, arguments: list[torch.Tensor]) -> tuple[Array, ...]:
    first = len(arguments) - piece.outputs
    buffers = [argument.clone() for argument in arguments[first:]]
    copy = torch.clone if _writes_inputs(piece) else lambda argument: argument
    Interpreter(piece.graph).run(*map(copy, arguments[:first]), *buffers)
    return tuple(_array(buffer) for buffer in buffers)


def _array(value: torch.Tensor) -> Array:
    return value.detach().float().contiguous().numpy()


def _bounds(
    piece: Piece, arguments: list[torch.Tensor], references: Sequence[Array]
) -> list[Bound]:
    eager = _eager(piece, arguments)
    pairs = list(zip(eager, references, strict=True))
    # A piece of fp32 arguments may still compute in a narrower type inside.
    narrow = any(spec.dtype in LOW_PRECISION for spec in piece.arguments)
    narrow = narrow or any(errors(got, want)[0] > 0 for got, want in pairs)
    quantised = _quantises(piece)
    unit = UNIT_FP8 if quantised else UNIT_BF16
    return [_bound(got, want, narrow or quantised, unit) for got, want in pairs]


UNIT_BF16, UNIT_FP8 = 2.0**-7, 2.0**-3
"""One unit in the last place, as a share of a value."""


def _quantises(piece: Piece) -> bool:
    """Whether a piece rounds to fp8: how it rounded before decides about a whole step of the type.

    It names the type, or calls an operator of ours whose results have it.
    """
    calls = [node for node in piece.graph.graph.nodes if node.op == "call_function"]
    named = any(
        given in FP8_TYPES
        for n in calls
        for given in (*n.args, *n.kwargs.values())
        if isinstance(given, torch.dtype)
    )
    names = [overload_name(node.target) or "" for node in calls]
    return named or any(mark in name for name in names for mark in ROUNDING)


def _bound(eager: Array, reference: Array, narrow: bool, unit: float) -> Bound:
    largest = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0))
    if not narrow:
        return Bound(1e-4 * largest, 1e-4 * largest)
    maximum, rms = errors(eager, reference)
    # One unit in the last place at the largest value: eager may happen to be exact.
    unit = unit * largest
    return Bound(max(1.25 * maximum, unit), max(1.25 * rms, unit / 4))


def _check(
    piece: Piece,
    run: RunPiece,
    arguments: list[torch.Tensor],
    references: Sequence[Array],
    bounds: Sequence[Bound],
) -> None:
    first = len(arguments) - piece.outputs
    poison(arguments[first:])
    run(arguments)
    for index, buffer in enumerate(arguments[first:]):
        if why := exceeds(_array(buffer), references[index], bounds[index]):
            raise CompileError(
                f"piece {piece.id[:12]} was compiled wrongly",
                f"output {index}: {why}",
                "report it with the piece's dump (--keep DIR)",
            )
