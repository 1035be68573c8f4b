"""What bench_experts.py times: a layer of experts by our kernels, and by torch's grouped products.

In bf16, and in fp8 with a scale of each channel of the weights and of each row: there both sides
quantise rows, and what the first products made, by the same torch functions.

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
from vcc.engine.ops.native_scaled_experts import rows_in_fp8
from vcc.engine.ops.triton import wrapped_experts, wrapped_scaled_experts

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
        at = Sorted.by(ids, self.down.shape[0])
        wide: Any = torch._grouped_mm(x[at.rows], self.gate_up.transpose(1, 2), at.ends)
        gate, up = wide.chunk(2, -1)
        inner = torch.nn.functional.silu(gate) * up
        out: Any = torch._grouped_mm(inner, self.down.transpose(1, 2), at.ends)
        return at.summed(out, weights)

    def wide(self, expert: int) -> tuple[Tensor, Tensor]:
        """Both weights of an expert in fp32."""
        return self.gate_up[expert].float(), self.down[expert].float()


@dataclass(frozen=True)
class ScaledLayer:
    """Weights of one layer in fp8, and the scales of their channels.

    Args:
        gate_up: [experts, 2 * width, hidden]; its scales fp32 [experts, 2 * width].
        down: [experts, hidden, width]; its scales fp32 [experts, hidden].
    """

    gate_up: Tensor
    down: Tensor
    gate_up_scale: Tensor
    down_scale: Tensor

    @classmethod
    def of(cls, layer: Layer) -> ScaledLayer:
        """A layer's weights in fp8, an expert at a time."""
        pairs = [_by_channel(one) for one in (layer.gate_up, layer.down)]
        return cls(*(values for values, _ in pairs), *(scale for _, scale in pairs))

    def ours(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """By the kernels of engine/ops/triton/scaled_experts.py."""
        return wrapped_scaled_experts.scaled_experts(
            *(x, self.gate_up, self.down, self.gate_up_scale, self.down_scale, None, None),
            *(weights, ids, LEAST),
            through=lambda kernel: kernel,
        )

    def grouped(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """By torch._scaled_grouped_mm, as `Layer.grouped`.

        Raises:
            AttributeError, RuntimeError, NotImplementedError: this torch or device has it not.
        """
        at = Sorted.by(ids, self.down.shape[0])
        values, scale = _quantised(x)
        wide = _product(values[at.rows], self.gate_up, scale[at.rows], self.gate_up_scale, at.ends)
        gate, up = wide.chunk(2, -1)
        values, scale = _quantised(torch.nn.functional.silu(gate) * up)
        return at.summed(_product(values, self.down, scale, self.down_scale, at.ends), weights)

    def quantised(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """What both sides quantise: rows, and as many values as the first products make."""
        _quantised(x)
        inner = x.new_ones(ids.numel(), self.down.shape[2])
        return _quantised(inner)[0]

    def wide(self, expert: int) -> tuple[Tensor, Tensor]:
        """Both weights of an expert in fp32, scales multiplied in."""
        gate_up = self.gate_up[expert].float() * self.gate_up_scale[expert][:, None]
        return gate_up, self.down[expert].float() * self.down_scale[expert][:, None]


LEAST = 1e-10


def _quantised(x: Tensor) -> tuple[Tensor, ...]:
    return rows_in_fp8(x, None, False, LEAST)


def _by_channel(weight: Tensor) -> tuple[Tensor, Tensor]:
    pairs = [_quantised(one) for one in weight]
    return torch.stack([one[0] for one in pairs]), torch.stack([one[1][:, 0] for one in pairs])


def _product(left: Tensor, right: Tensor, by_row: Tensor, by_column: Tensor, ends: Tensor) -> Any:
    return torch._scaled_grouped_mm(
        left,
        right.transpose(1, 2),
        by_row.flatten(),
        by_column,
        offs=ends,
        out_dtype=torch.bfloat16,
        use_fast_accum=False,
    )


@dataclass(frozen=True)
class Sorted:
    """Pairs of a row and a choice in the order of their experts.

    Args:
        order: pair of each place.
        rows: row of each place.
        ends: int32 [experts]: places before the end of each expert.
        choices: of a row.
    """

    order: Tensor
    rows: Tensor
    ends: Tensor
    choices: int

    @classmethod
    def by(cls, ids: Tensor, experts: int) -> Sorted:
        """Of ids [rows, choices]."""
        chosen, order = torch.sort(ids.flatten())
        each = torch.arange(experts, device=ids.device, dtype=ids.dtype)
        ends = torch.searchsorted(chosen, each, right=True).to(torch.int32)
        return cls(order, order // ids.shape[1], ends, ids.shape[1])

    def summed(self, out: Tensor, weights: Tensor) -> Tensor:
        """Results of places, put back, weighted and summed."""
        back = torch.empty_like(out).index_copy_(0, self.order, out)
        each = back.view(-1, self.choices, out.shape[1])
        return (each * weights[..., None]).sum(1).to(out.dtype)


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


def bytes_read(given: Sequence[tuple[Tensor, ...]], each: int = 2) -> float:
    """Of the weights of the experts that a step takes, in the mean; `each`: bytes of a value."""
    expert = 3 * SHAPE["hidden"] * SHAPE["width"] * each
    return sum(expert * len(ids.unique()) for *_, ids in given) / len(given)


def error(found: Tensor, exact: Tensor) -> float:
    """Root mean square of the difference over that of the values."""
    wide = exact.double()
    return float((found.double() - wide).square().mean().sqrt() / wide.square().mean().sqrt())
