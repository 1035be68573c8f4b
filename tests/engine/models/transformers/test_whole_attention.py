"""Attention of plain forwards as a call of torch's own function gives what `eager` gives."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vcc.cache.errors import ModelError
from vcc.engine.models.transformers.model import as_empty
from vcc.engine.models.transformers.whole_attention import EAGER, WHOLE, make_whole

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 90,
}


def made(architecture: str, **config: Any) -> Any:
    model = make_whole(architecture, config, torch.float32)
    as_empty(model)
    generator = torch.Generator().manual_seed(0)
    for one in model.parameters():
        one.data = torch.randn(one.shape, generator=generator) * 0.3
    return model


def both(model: Any, **inputs: Any) -> tuple[Tensor, Tensor, int]:
    """Of our entry and of `eager`, and how often torch's function was called."""
    own = functional.scaled_dot_product_attention
    with torch.no_grad(), patch.object(functional, own.__name__, side_effect=own) as spy:
        found = model(**inputs)[0]
        count = spy.call_count
        model.set_attn_implementation(EAGER)
        return found, model(**inputs)[0], count


def test_an_encoder_calls_torchs_function_in_every_layer() -> None:
    """A text that is all padding sees the mean of its values, as `eager` has it, and not zeros."""
    model = made("BertModel", **SIZES)
    assert model.config._attn_implementation == WHOLE
    # The buffers that a model computes are not empty in a build.
    model.embeddings.position_ids = torch.arange(512)[None]
    model.embeddings.token_type_ids = torch.zeros(1, 512, dtype=torch.int64)
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]])
    found, wanted, count = both(model, input_ids=torch.arange(8).view(2, 4), attention_mask=mask)
    assert count == SIZES["num_hidden_layers"]
    torch.testing.assert_close(found, wanted)


def test_a_model_without_attention_is_made_as_it_is() -> None:
    config = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}
    model = make_whole("ResNetModel", {**config, "layer_type": "basic"}, torch.float32)
    assert not any("attention" in name.lower() for name, _ in model.named_modules())


def test_a_model_with_attention_of_its_own_is_eager() -> None:
    model = make_whole("DebertaV2Model", {**SIZES, "relative_attention": True}, torch.float32)
    assert model.config._attn_implementation == EAGER


def call(**keywords: Any) -> Tensor:
    """A layer of BERT calls our entry with a keyword that it does not have itself."""
    from transformers import AttentionInterface

    layer = made("BertModel", **SIZES).encoder.layer[0].attention.self
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 4, 5, 8, generator=generator) for _ in range(3))
    found: Tensor = AttentionInterface()[WHOLE](layer, q, k, v, None, scaling=0.2, **keywords)[0]
    return found


def test_a_keyword_that_torchs_function_lacks_goes_to_the_eager_function() -> None:
    plain = call(position_ids=torch.zeros(1, 5), use_cache=False)
    with patch("transformers.models.bert.modeling_bert.eager_attention_forward") as eager:
        eager.return_value = (plain * 2, None)
        assert torch.equal(call(s_aux=None, cu_seq_lens_q=None), plain)
        assert not eager.called
        assert torch.equal(call(softcap=5.0), plain * 2)
        assert eager.call_args.kwargs == {"scaling": 0.2, "dropout": 0.0, "softcap": 5.0}


def test_a_layer_without_an_eager_function_is_refused() -> None:
    from transformers import AttentionInterface

    call()
    q = torch.zeros(1, 4, 5, 8)
    with pytest.raises(ModelError, match="the attention of Linear is not supported"):
        AttentionInterface()[WHOLE](nn.Linear(1, 1), q, q, q, None, position_bias=q)
