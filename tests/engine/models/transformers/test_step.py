"""Decoders of transformers behind the step: which are taken, how they cut, which are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.traced_checkpoints import config_of
from support.traced_reference import PAGE, others, rewritten, row

from vcc.cache.errors import ModelError
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.bindings import bindings_of
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.register import load_ops
from vcc.engine.partition.split import split
from vcc.engine.trace.decoder import StepShape, decoder_trace
from vcc.engine.trace.trace import trace

CUTS = ("vcc::kv_write", "vcc::paged_attention")
SHAPE = StepShape(max_tokens=64, max_seqs=8, block_size=16, max_blocks_per_seq=32)


def pieces(config: dict[str, Any]) -> int:
    load_ops()
    request = decoder_trace(spec_of(config), torch.float32, OpChoice(), SHAPE)
    return len(split(trace(request), CUTS, ()).unique)


@pytest.mark.parametrize("architecture", ["OPTForCausalLM", "GPTNeoXForCausalLM"])
def test_unique_pieces_do_not_grow_with_depth(architecture: str) -> None:
    found = [pieces(config_of(architecture, num_hidden_layers=layers)) for layers in (2, 6)]
    assert found == [3, 3]


REFUSED = {
    "GptOssForCausalLM": ({"head_dim": 16}, "attention keyword s_aux"),
    "BloomForCausalLM": ({"max_position_embeddings": 64}, "attention of its own"),
    "FalconForCausalLM": ({}, "attention of its own"),
    "DiffLlamaForCausalLM": ({}, "not every layer"),
    "BertLMHeadModel": ({}, "a mask of its own"),
    "JetMoeForCausalLM": ({}, "cannot run without data"),
    "GPTJForCausalLM": ({"rotary_dim": 64}, "does not run as config.json has it"),
}


@pytest.mark.parametrize("architecture", REFUSED)
def test_a_model_that_attends_in_another_way_is_refused(architecture: str) -> None:
    fields, what = REFUSED[architecture]
    config = config_of(architecture, **fields) | fields
    with pytest.raises(ModelError, match=what) as caught:
        pieces(config)
    assert caught.value.exit == 2
    assert caught.value.why
    assert caught.value.hint


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"is_encoder_decoder": True}, "is_encoder_decoder is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention is not supported"),
        ({"alibi": True}, "alibi is not supported"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised checkpoint .awq."),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"num_hidden_layers": None}, "config.json has no num_hidden_layers"),
        ({"head_dim": 0}, "head_dim of config.json must be at least 1"),
    ],
)
def test_a_setting_that_no_step_has_is_refused_before_transformers_is_asked(
    fields: dict[str, Any], what: str
) -> None:
    with pytest.raises(ModelError, match=what) as caught:
        spec_of(config_of("Starcoder2ForCausalLM") | fields)
    assert caught.value.exit == 2


def test_a_size_that_the_config_leaves_out_is_named() -> None:
    config = config_of("Starcoder2ForCausalLM")
    del config["num_key_value_heads"]
    with pytest.raises(ModelError, match="differ in kv_heads") as caught:
        pieces(config)
    assert "num_key_value_heads" in caught.value.hint


def test_experts_are_bound_in_a_line_a_layer() -> None:
    """As published: a tensor for each expert, which the operator takes stacked."""
    found = bindings_of(spec_of(config_of("OlmoeForCausalLM")))
    text = str(found["model.model.layers.1.mlp.experts.gate_up_proj"])
    gate, up = (f'tensor("model.layers.1.mlp.experts.*.{n}_proj.weight")' for n in ("gate", "up"))
    assert text == f"stack(cat({gate}, {up}), 0:6)"


def test_the_page_has_the_names_of_other_families() -> None:
    assert f"<!-- others -->\n{others()}\n<!-- end others -->" in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_pieces_of_a_family() -> None:
    """`PYTHONPATH=tests python -m support.traced_reference` writes the table anew."""
    assert row("GPT2LMHeadModel") in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_the_page_has_the_pieces_of_all_families() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rewritten(text) == text
