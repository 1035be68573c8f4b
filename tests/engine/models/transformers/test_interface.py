"""What models ask of attention, masks and experts: honoured, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vcc.cache.errors import ModelError
from vcc.engine.models.transformers.interface import NAME, AttentionCall, handled_by, register
from vcc.engine.models.transformers.masks import window_of


class Noted:
    """Keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []

    def attend(self, call: AttentionCall) -> Tensor:
        self.calls.append(call)
        return call.q.transpose(1, 2)

    def mask(self, function: Any, queries: Any) -> Tensor | None:
        return None

    def experts(self, layer: Any, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        return x


@pytest.fixture
def noted() -> Iterator[Noted]:
    handler = Noted()
    with handled_by(handler):
        yield handler


def attend(module: nn.Module | None = None, keys: int = 5, width: int = 8, **keywords: Any) -> None:
    from transformers import AttentionInterface

    q, k = torch.zeros(1, 4, 5, 8), torch.zeros(1, 2, keys, 8)
    v = torch.zeros(1, 2, keys, width)
    AttentionInterface()[NAME](module or nn.Module(), q, k, v, None, **keywords)


def test_scale_window_and_cap_are_handed_on(noted: Noted) -> None:
    attend(scaling=0.3, sliding_window=24, softcap=5.0, dropout=0.0, position_ids=torch.zeros(1, 5))
    attend(is_causal=True, cu_seq_lens_q=None, s_aux=None)
    (first, second) = noted.calls
    assert (first.scale, first.window, first.cap) == (0.3, 24, 5.0)
    assert (second.scale, second.window, second.cap) == (8**-0.5, 0, 0.0)


@pytest.mark.parametrize(
    "name", ["s_aux", "position_bias", "head_mask", "cu_seq_lens_q", "indices", "anything_new"]
)
def test_a_keyword_that_is_not_known_is_refused_by_name(noted: Noted, name: str) -> None:
    with pytest.raises(ModelError, match=f"attention keyword {name} is not supported") as caught:
        attend(**{name: torch.zeros(4)})
    assert caught.value.exit == 2
    assert caught.value.why
    assert caught.value.hint
    assert noted.calls == []


@pytest.mark.parametrize(
    ("keywords", "what"),
    [
        ({"is_causal": False}, "attention that is not causal"),
        ({"keys": 7}, "cross attention"),
        ({"width": 4}, "heads of different sizes"),
    ],
)
def test_other_attention_is_refused(noted: Noted, keywords: Any, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        attend(**keywords)


def test_a_layer_that_says_that_it_is_not_causal_is_refused(noted: Noted) -> None:
    layer = nn.Module()
    layer.is_causal = False  # type: ignore[assignment]
    with pytest.raises(ModelError, match="not causal"):
        attend(layer)


EXPERTS: dict[str, Any] = {
    "biases": {"has_bias": True},
    "no gate": {"has_gate": False},
    "transposed weights": {"is_transposed": True},
    "gate and up interleaved": {"is_concatenated": False},
    "another activation": {"act_fn": nn.GELU()},
    "a gate of their own": {},
}


@pytest.mark.parametrize("what", EXPERTS)
def test_experts_that_the_operator_has_not_are_refused(noted: Noted, what: str) -> None:
    from transformers import PretrainedConfig
    from transformers.integrations.moe import ExpertsInterface, use_experts_implementation

    @use_experts_implementation
    class Layer(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.act_fn = nn.SiLU()

    class OwnGate(Layer):  # type: ignore[misc, valid-type]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            del self.act_fn

        def _apply_gate(self, gate_up: Tensor) -> Tensor:
            return gate_up

    layer = (OwnGate if what == "a gate of their own" else Layer)(PretrainedConfig())
    for name, value in EXPERTS[what].items():
        setattr(layer, name, value)
    one = torch.zeros(2, 4)
    with pytest.raises(ModelError, match=f"experts with {what} is not supported"):
        ExpertsInterface()[NAME](layer, one, one, one)


def test_a_mask_of_the_models_own_is_refused(noted: Noted) -> None:
    from transformers import AttentionMaskInterface

    register()
    with pytest.raises(ModelError, match="attention mask of its own"):
        AttentionMaskInterface()[NAME](1, 5, 5, attention_mask=torch.ones(1, 5))


def _masks() -> dict[str, tuple[Callable[[], Any], int | None]]:
    from transformers import masking_utils as m

    return {
        "causal": (lambda: m.causal_mask_function, 0),
        "a window": (lambda: m.sliding_window_causal_mask_function(24), 24),
        "a window beyond the context": (lambda: m.sliding_window_causal_mask_function(999), 0),
        "both ways": (lambda: m.bidirectional_mask_function, None),
        "chunks": (lambda: m.chunked_causal_mask_function(8, torch.zeros(1)), None),
        "prefix": (lambda: m.or_masks(m.causal_mask_function, lambda b, h, q, k: k < 4), None),
        "by data": (lambda: m.packed_sequence_mask_function(torch.zeros(1, 4)), None),
    }


@pytest.mark.parametrize("name", _masks())
def test_a_mask_is_known_by_what_it_allows(name: str) -> None:
    make, window = _masks()[name]
    assert window_of(make(), 256) == window
