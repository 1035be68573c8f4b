"""What the tensors of a decoder's checkpoint are called: where families differ, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Names inside `model.layers.N`.

    Attributes:
        qkv: projections of the attention, in order; one name where they are one tensor.
        gate_up: those of a gated feed-forward layer.
        sparse: the block of a layer with experts.
        expert: gate, up and down of an expert.
    """

    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    gate_up: tuple[str, ...] = ("gate_proj", "up_proj")
    sparse: str = "mlp"
    expert: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


DEFAULT_NAMES = TensorNames()
FUSED_NAMES = TensorNames(qkv=("qkv_proj",), gate_up=("gate_up_proj",))
MIXTRAL_NAMES = TensorNames(sparse="block_sparse_moe", expert=("w1", "w3", "w2"))

STACKED_BLOCK = "mlp"
"""The block of a layer whose experts are stored as one tensor, whatever the family."""

STACKED = ("experts.gate_up_proj", "experts.down_proj")
"""Tensors [experts, 2 * width, hidden] and [experts, hidden, width] of such a block."""
