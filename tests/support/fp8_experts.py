"""Experts of transformers' models with activations that are seen, or quantised and dequantised.

A layer's experts are one module there, and a tensor each in checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

EXPERT_SIZES: dict[str, dict[str, Any]] = {
    "qwen2_moe": {"moe_intermediate_size": 128, "shared_expert_intermediate_size": 128},
    "qwen3_moe": {"moe_intermediate_size": 128},
}
"""Widths of experts that whole blocks fit into, beside those of all models."""

Through = Callable[[Tensor, str], Tensor]
"""What becomes of the input of a projection of an expert, known by the name of its weight."""


def see_experts(model: nn.Module, names: Collection[str], seen: dict[str, Tensor]) -> None:
    """Keep the largest magnitude of what goes into every expert; of those without rows, of all.

    Args:
        model: of transformers; its experts are changed.
        names: weights that checkpoints have.
        seen: by weight; filled when the model runs.
    """
    for home, module in _layers(model, names):
        _run_by(module, home, _Seen(seen, [name for name in names if home in name]))


SAME_INPUT = {"gate_proj": "up_proj", "w1": "w3"}
"""Gate and up of an expert have one input."""


class _Seen:
    """Notes what it is called with; experts that nobody has gone to have what others had."""

    def __init__(self, seen: dict[str, Tensor], names: list[str]) -> None:
        self.seen, self.names = seen, names

    def __call__(self, x: Tensor, name: str) -> Tensor:
        kind = name.split(".")[-2]
        most = torch.maximum(x.abs().max(), self.seen.get(name, torch.zeros(())))
        for one in (kind, *([SAME_INPUT[kind]] if kind in SAME_INPUT else [])):
            self.seen[name.replace(kind, one)] = most
            for other in self.names:
                if other.split(".")[-2] == one:
                    self.seen.setdefault(other, most)
        return x


def spread_of(name: str) -> float:
    """How much more an expert's scale reaches: experts of one layer differ."""
    found = re.search(r"\.experts\.(\d+)\.", name)
    return 1.0 + 0.15 * (int(found[1]) % 5) if found else 1.0


def quantise_experts(
    model: nn.Module,
    state: Mapping[str, Tensor],
    rounded: Callable[[Tensor, Tensor | None], Tensor],
) -> None:
    """Round what goes into experts whose weights are fp8 in the checkpoint.

    Args:
        model: of transformers, changed.
        state: of the checkpoint.
        rounded: an activation with a given scale, or with one made of it.
    """

    def through(x: Tensor, name: str) -> Tensor:
        scale = state.get(name.replace(".weight", ".input_scale"))
        return rounded(x, None if scale is None else scale.float())

    stored = [name for name, tensor in state.items() if tensor.dtype == torch.float8_e4m3fn]
    for home, module in _layers(model, stored):
        _run_by(module, home, through)


def _layers(model: nn.Module, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The experts of each layer, with the beginning of their names in the checkpoint."""
    for name, module in model.named_modules():
        if not name.endswith(".experts"):
            continue
        layer = re.match(r"model\.layers\.\d+\.", name)
        assert layer is not None
        homes = {n.partition(".experts.")[0] for n in names if n.startswith(layer[0])}
        for home in homes:
            if any(n.startswith(f"{home}.experts.") for n in names):
                yield f"{home}.experts.", module


def _run_by(module: Any, home: str, through: Through) -> None:
    """Let a module's experts run one after another, inputs first through a function."""
    up, down = ("w1", "w2") if "block_sparse_moe" in home else ("gate_proj", "down_proj")

    def forward(x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for expert in ids.unique().tolist():
            rows, choices = torch.where(ids == expert)
            seen = through(x[rows], f"{home}{expert}.{up}.weight")
            gate, rest = nn.functional.linear(seen, module.gate_up_proj[expert]).chunk(2, dim=-1)
            inner = through(module.act_fn(gate) * rest, f"{home}{expert}.{down}.weight")
            each = nn.functional.linear(inner, module.down_proj[expert])
            out.index_add_(0, rows, (each * weights[rows, choices, None]).to(x.dtype))
        return out

    module.forward = forward
