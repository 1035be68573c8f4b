"""What bench_experts.py times: a layer of experts by our kernels, and by torch's grouped products.

Routings are drawn anew for each call of a graph, so that a decode step reads experts which the last
one has not left in the cache; weights are one set, several times the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops.native_experts import topk_softmax
from vcc.engine.ops.triton import wrapped_experts

SHAPE = {"experts": 128, "top_k": 8, "hidden": 2048, "width": 768}
"""Of a layer of Qwen3-30B-A3B."""

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Layer:
    """Weights of one layer, in bf16.

    Args:
        gate_up: [experts, 2 * width, hidden].
        down: [experts, hidden, width].
    """

    gate_up: Tensor
    down: Tensor

    @classmethod
    def drawn(cls, device: str, experts: int, hidden: int, width: int, **_: int) -> Layer:
        """Random weights of the size that keeps results near one."""

        def made(*size: int) -> Tensor:
            return torch.randn(size, device=device, dtype=torch.bfloat16) / size[-1] ** 0.5

        return cls(made(experts, 2 * width, hidden), made(experts, hidden, width))

    def ours(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """By the kernels of engine/ops/triton/experts.py."""
        return wrapped_experts.moe_experts(
            x, self.gate_up, self.down, weights, ids, through=lambda kernel: kernel
        )

    def grouped(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """By torch: rows sorted by expert, grouped products, rows put back, weighted and summed."""
        top_k = ids.shape[1]
        chosen, order = torch.sort(ids.flatten())
        each = torch.arange(self.down.shape[0], device=ids.device, dtype=ids.dtype)
        ends = torch.searchsorted(chosen, each, right=True).to(torch.int32)
        rows = x[order // top_k]
        wide: Any = torch._grouped_mm(rows, self.gate_up.transpose(1, 2), ends)
        gate, up = wide.chunk(2, -1)
        inner = torch.nn.functional.silu(gate) * up
        out: Any = torch._grouped_mm(inner, self.down.transpose(1, 2), ends)
        back = torch.empty_like(out).index_copy_(0, order, out)
        return (back.view(-1, top_k, x.shape[1]) * weights[..., None]).sum(1).to(x.dtype)


def routings(tokens: int, count: int, device: str) -> list[tuple[Tensor, Tensor, Tensor]]:
    """So many inputs of the layer: rows, weights and ids, each expert as likely as any other."""
    found = []
    for _ in range(count):
        x = torch.randn(tokens, SHAPE["hidden"], device=device, dtype=torch.bfloat16)
        logits = torch.randn(tokens, SHAPE["experts"], device=device)
        found.append((x, *topk_softmax(logits, SHAPE["top_k"], True)))
    return found


def calls(one: Callable[..., Tensor], given: Sequence[tuple[Tensor, ...]]) -> list[Call]:
    """A call for each routing."""
    return [partial(one, *tensors) for tensors in given]


def floating_operations(tokens: int) -> float:
    """Of all products of a step, each expert's rows counted once."""
    return 2.0 * tokens * SHAPE["top_k"] * 3 * SHAPE["hidden"] * SHAPE["width"]


def bytes_read(given: Sequence[tuple[Tensor, ...]]) -> float:
    """Of the weights of the experts that a step takes, in the mean."""
    expert = 3 * SHAPE["hidden"] * SHAPE["width"] * 2
    return sum(expert * len(ids.unique()) for *_, ids in given) / len(given)


def error(found: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference over that of the values."""
    wide = exact.double()
    return float((found.double() - wide).square().mean().sqrt() / wide.square().mean().sqrt())
