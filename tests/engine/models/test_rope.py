"""Rope settings in both layouts, their frequencies, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vcc.cache.errors import ModelError
from vcc.engine.models.rope import RopeSpec, rope_of
from vcc.engine.models.rope_frequencies import inverse_frequencies
from vcc.engine.ops.layers import RotaryEmbedding

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def rope(partial: bool = False, **config: Any) -> RopeSpec:
    return rope_of({"max_position_embeddings": 512, **config}, 32, 10000.0, partial)


@pytest.mark.parametrize(
    "scaling",
    [{"rope_type": "linear", "factor": 2.0}, LLAMA3, {"type": "yarn", "factor": 4.0}],
    ids=["linear", "llama3", "yarn"],
)
def test_old_and_new_layouts_mean_the_same(scaling: dict[str, Any]) -> None:
    old = rope(rope_theta=500.0, rope_scaling=scaling)
    new = rope(rope_parameters={"rope_theta": 500.0, **scaling})
    assert old == new


def test_a_layout_for_each_layer_type_is_taken_when_all_agree() -> None:
    one = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    both = {"full_attention": one, "sliding_attention": dict(one)}
    assert rope(rope_parameters=both) == rope(rope_parameters=one)
    both["sliding_attention"] = {**one, "rope_theta": 200.0}
    with pytest.raises(ModelError, match="differ between layers"):
        rope(rope_parameters=both)


def test_an_absent_original_length_is_the_longest_context() -> None:
    assert rope(rope_scaling={"rope_type": "yarn", "factor": 4.0}).original == 512


def test_an_original_length_beside_the_settings_wins() -> None:
    found = rope(rope_scaling=LLAMA3, original_max_position_embeddings=128)
    assert found.original == 128


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 2.0}, LLAMA3])
def test_frequencies_equal_those_of_transformers(scaling: dict[str, Any] | None) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_theta": 10000.0, **(scaling or {"rope_type": "default"})}
    config = LlamaConfig(head_dim=32, rope_parameters=dict(parameters), max_position_embeddings=512)
    theirs = LlamaRotaryEmbedding(config).inv_freq.numpy()
    np.testing.assert_allclose(
        inverse_frequencies(rope(rope_parameters=parameters)), theirs, rtol=3e-7
    )


@pytest.mark.parametrize("kind", ["dynamic", "mystery"])
def test_other_kinds_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ModelError, match=kind) as caught:
        rope(rope_scaling={"rope_type": kind, "factor": 2.0})
    assert "llama3" in caught.value.hint


@pytest.mark.parametrize(
    "bad",
    [
        {"rope_scaling": {"rope_type": "linear"}},
        {"rope_scaling": {"rope_type": "linear", "factor": 0}},
        {"rope_scaling": {"rope_type": "linear", "factor": "two"}},
        {"rope_scaling": {"rope_type": "linear", "factor": float("nan")}},
        {"rope_scaling": {"rope_type": "linear", "factor": -1.0}},
        {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}},
        {"rope_scaling": {**LLAMA3, "low_freq_factor": None}},
        {"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 0.5}},
        {"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1e-320}},
        {"rope_scaling": [1]},
        {"rope_theta": True},
        {"partial_rotary_factor": 0.5},
    ],
)
def test_unusable_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        rope(**bad)


def test_a_partial_rope_turns_only_the_first_values() -> None:
    spec = rope(partial=True, partial_rotary_factor=0.5)
    assert spec.dim == 16
    angles = torch.arange(5.0)[:, None] * torch.from_numpy(inverse_frequencies(spec))
    q = torch.randn(5, 64)
    turned, _ = RotaryEmbedding(32)(q, q, angles.cos(), angles.sin())
    heads, before = turned.view(5, 2, 32), q.view(5, 2, 32)
    assert torch.equal(heads[..., 16:], before[..., 16:])
    low, high = before[..., :8], before[..., 8:16]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    torch.testing.assert_close(heads[..., :8], low * cos - high * sin)
    torch.testing.assert_close(heads[..., 8:16], high * cos + low * sin)


def test_an_odd_rotary_dimension_is_refused() -> None:
    with pytest.raises(ModelError, match="even"):
        rope(partial=True, partial_rotary_factor=0.1)
