"""Whether a pass keeps results: the graph before and after it on drawn inputs of several sizes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter

from vcc.engine.passes.apply import Dumps, apply
from vcc.engine.passes.base import Pass, PassContext
from vcc.engine.passes.script import FILL
from vcc.engine.torch_shim.fake_calls import sized, symbols_of
from vcc.engine.types import PassReport, Traced

ALLOWED = 1e-4
"""Largest error as a share of the largest value: the numbers rule in fp32."""

SCALES = (0.0, 0.5, 1.0, 2.1)
"""Sizes that are tried, as multiples of the trace's example sizes."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a pass did to a model, and how far results moved.

    Attributes:
        report: matches, refusals, savings.
        sizes: the steps that were run, as values of the size symbols.
        error: largest error as a share of the largest value, inputs that are written included.
        exact: every bit is the same.
        settled: a second run finds nothing more.
    """

    report: PassReport
    sizes: tuple[Mapping[str, int], ...]
    error: float
    exact: bool
    settled: bool

    @property
    def equal(self) -> bool:
        """Whether the results are equal by the numbers rule."""
        return self.error <= ALLOWED


def prove(
    traced: Traced,
    one: Pass,
    context: PassContext | None = None,
    dumps: Dumps | None = None,
    scales: Sequence[float] = SCALES,
) -> Proof:
    """Run a pass on a trace (which it rewrites) and compare results.

    Args:
        traced, context, dumps: as for `apply`.
        one: the pass.
        scales: multiples of the example sizes to run.

    Raises:
        CompileError: the pass raises or leaves a broken graph.
    """
    before = copy.deepcopy(traced.graph)
    report = apply(traced, [one], context, dumps).reports[0]
    steps = _steps(traced, scales)
    errors = [_error(before, traced, sizes) for sizes in steps]
    again = apply(Traced(copy.deepcopy(traced.graph), *_rest(traced)), [one], context)
    return Proof(
        report,
        tuple({str(symbol): size for symbol, size in sizes.items()} for sizes in steps),
        max(error for error, _ in errors),
        all(exact for _, exact in errors),
        again.reports[0].matches == 0,
    )


def _rest(traced: Traced) -> tuple[Any, ...]:
    return traced.placeholders, traced.ranges, traced.constants


def _steps(traced: Traced, scales: Sequence[float]) -> list[dict[Any, int]]:
    values = [node.meta.get("val") for node in traced.graph.graph.nodes if node.op == "placeholder"]
    hints = symbols_of([value for value in values if isinstance(value, Tensor)])
    found: list[dict[Any, int]] = []
    for scale in scales:
        sizes = {}
        for symbol, hint in hints.items():
            low, high = traced.ranges[str(symbol)]
            sizes[symbol] = min(max(math.ceil(hint * scale), low), high)
        if sizes not in found:
            found.append(sizes)
    return found


def _error(before: GraphModule, traced: Traced, sizes: Mapping[Any, int]) -> tuple[float, bool]:
    given = draw(traced, sizes)
    results = []
    for graph in (before, traced.graph):
        inputs = [one.clone() for one in given]
        with torch.no_grad():
            outputs = Interpreter(graph).run(*inputs)
        flat = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        results.append([one for one in (*flat, *inputs) if isinstance(one, Tensor)])
    pairs = list(zip(*results, strict=True))
    exact = all(torch.equal(_bits(a), _bits(b)) for a, b in pairs)
    return max((_share(a, b) for a, b in pairs), default=0.0), exact


def draw(traced: Traced, sizes: Mapping[Any, int]) -> list[Tensor]:
    """Inputs of a step of these sizes: drawn numbers, and integers that are right for a decoder."""
    generator = torch.Generator().manual_seed(0)
    nodes = {node.name: node for node in traced.graph.graph.nodes if node.op == "placeholder"}
    found = []
    for placeholder in traced.placeholders:
        value = nodes[placeholder.name].meta["val"]
        shape = [sized(size, sizes) for size in value.shape]
        constant = traced.constants.get(placeholder.target)
        if placeholder.role == "constant" and constant is not None:
            found.append(constant.clone())
        elif value.dtype.is_floating_point:
            data = torch.randn(shape, generator=generator)
            found.append((data / math.sqrt(max(shape[-1:], default=1))).to(value.dtype))
        else:
            found.append(_integers(placeholder.target, shape).to(value.dtype))
    return found


def _integers(name: str, shape: list[int]) -> Tensor:
    kind = FILL.get(name, "zeros") if len(shape) == 1 else "zeros"
    return torch.arange(shape[0]) if kind == "arange" else getattr(torch, kind)(shape)


def _bits(value: Tensor) -> Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def _share(before: Tensor, after: Tensor) -> float:
    """Error as a share of the largest value; places that are NaN in both are equal."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return math.inf
    one, other = before.double(), after.double()
    if not torch.equal(one.isnan(), other.isnan()):
        return math.inf
    same = (one == other) | one.isnan()
    error = torch.where(same, 0.0, (one - other).abs())
    if not error.numel() or not bool(error.any()):
        return 0.0
    most = float(one[one.isfinite()].abs().max()) if bool(one.isfinite().any()) else 0.0
    return float(error.max()) / most if most else math.inf
