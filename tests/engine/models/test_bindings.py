"""Bindings of a decoder: every parameter has one; checkpoints are checked against the config."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES

from vcc.cache import canonical
from vcc.cache.errors import ModelError
from vcc.engine.models.architectures import DecoderSpec, spec_of
from vcc.engine.models.bindings import bindings_of, check, check_number, expected_tensors, parse
from vcc.engine.models.decoder import Decoder
from vcc.engine.models.tensor_info import TensorInfo


def spec(arch: str, **fields: Any) -> DecoderSpec:
    return spec_of({"architectures": [ARCHITECTURES[arch]], **SIZES, **OWN_SIZES[arch], **fields})


def tensors(found: DecoderSpec) -> dict[str, TensorInfo]:
    return {name: TensorInfo("float32", shape) for name, shape in expected_tensors(found).items()}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_parameter_has_a_binding_and_no_other_has(arch: str, tied: bool) -> None:
    found = spec(arch, tie_word_embeddings=tied)
    with torch.device("meta"):
        decoder = Decoder(found.for_length(found.usual_length), torch.float32)
    bindings = bindings_of(found, tensors(found))
    assert bindings.keys() == dict(decoder.named_parameters()).keys()
    assert all(parse(str(binding)) == binding for binding in bindings.values())


def test_the_form_of_fused_and_tied_bindings() -> None:
    bindings = bindings_of(spec("qwen2", tie_word_embeddings=True))
    layer = 'tensor("model.layers.0.self_attn.{}_proj.bias")'
    assert str(bindings["layers.0.attn.qkv.bias"]) == (
        f"cat({layer.format('q')}, {layer.format('k')}, {layer.format('v')})"
    )
    assert str(bindings["head.weight"]) == 'tied("embed.weight")'


def test_disagreement_names_the_first_five_differences() -> None:
    found = spec("llama")
    given = tensors(spec("llama", hidden_size=32, head_dim=16))
    with pytest.raises(ModelError, match="disagree") as caught:
        check(found, given)
    shown = caught.value.why.split("; ")
    assert len(shown) == 6
    assert shown[0] == "model.embed_tokens.weight is [160, 32], the config says [160, 64]"
    assert shown[-1].startswith("and ")


def test_weights_that_are_no_fractions_are_a_difference() -> None:
    found = spec("llama")
    given = tensors(found)
    given["model.norm.weight"] = TensorInfo("int32", given["model.norm.weight"].shape)
    with pytest.raises(ModelError, match="disagree") as caught:
        check(found, given)
    assert caught.value.why == "model.norm.weight is int32, weights are floating-point"


def test_missing_and_surplus_tensors_are_differences() -> None:
    found = spec("llama")
    given = tensors(found)
    del given["model.layers.1.mlp.up_proj.weight"]
    given["model.layers.0.self_attn.q_proj.bias"] = TensorInfo("float32", (64,))
    with pytest.raises(ModelError) as caught:
        bindings_of(found, given)
    assert caught.value.why == (
        "model.layers.1.mlp.up_proj.weight is missing; "
        "model.layers.0.self_attn.q_proj.bias is not part of the model"
    )


def test_an_untied_model_needs_its_head() -> None:
    tied, untied = (spec("llama", tie_word_embeddings=tie) for tie in (True, False))
    with pytest.raises(ModelError, match=r"lm_head\.weight is missing"):
        check(untied, tensors(tied))


def test_stored_frequencies_and_a_stored_copy_of_a_tied_head_are_no_difference() -> None:
    found = spec("llama", tie_word_embeddings=True)
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": TensorInfo("float32", (8,)),
        "lm_head.weight": TensorInfo("float32", (160, 64)),
    }
    check(found, tensors(found) | extra)


def test_more_layers_than_a_manifest_can_hold_are_refused_before_anything_is_built() -> None:
    """And as many as the hint says are not."""
    config = {**SIZES, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 10_000}
    deep = spec_of(config)
    with pytest.raises(ModelError, match="10000 layers are too many") as caught:
        check_number(deep)
    most = int(re.findall(r"about (\d+) layers", caught.value.hint)[0])
    fits = spec_of({**config, "num_hidden_layers": most})
    check_number(fits)
    bindings = {name: str(one) for name, one in bindings_of(fits).items()}
    assert len(canonical.encode(bindings, "bindings")) < canonical.MAX_BYTES - (48 << 10)
