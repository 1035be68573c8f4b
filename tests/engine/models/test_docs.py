"""docs/models.md is what the code supports and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import ARCHITECTURES as FAMILIES
from support.models_reference import all_facts, facts_of, rewritten, text_of
from support.sources import ROOT

from vcc.cache.errors import DeviceError, ModelError
from vcc.engine.config.model import DTYPES_OF, resolve_model
from vcc.engine.config.modes import Dtype, Platform
from vcc.engine.config.types import ModelConfig
from vcc.engine.models.architectures import ACTIVATIONS, ARCHITECTURES, REFUSED, spec_of
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.listing import FACTS
from vcc.engine.models.remote_code import remote_code
from vcc.engine.models.rope import _KINDS
from vcc.engine.models.source import open_source

TEXT = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
ROWS = tuple(
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in TEXT.splitlines()
    if line.startswith("| ")
)

SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
QWEN = {"architectures": ["Qwen3ForCausalLM"]}

SETTINGS: dict[str, dict[str, Any]] = {
    "`quantization_config`": {"quantization_config": {"quant_method": "gptq"}},
    "`rope_scaling` of type `dynamic`": {"rope_scaling": {"rope_type": "dynamic"}},
    "rope settings by layer type": {
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e4},
            "sliding_attention": {"rope_theta": 1e6},
        }
    },
    "`partial_rotary_factor`": {"partial_rotary_factor": 0.5},
    "`hidden_act`": {"hidden_act": "relu"},
    "`layer_types`": {**QWEN, "layer_types": ["full_attention", "chunked_attention"]},
    "`layer_types` that differ (Mistral)": {
        "architectures": ["MistralForCausalLM"],
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "`use_bidirectional_attention`": {"use_bidirectional_attention": True},
    "`auto_map`": {"auto_map": {"AutoModelForCausalLM": "modeling_odd.OddForCausalLM"}},
    "`num_experts_per_tok`": {
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 4,
        "num_experts_per_tok": 5,
    },
}


def refused(config: dict[str, Any]) -> ModelError:
    whole = {**SMALL, "max_position_embeddings": 64, **config}
    with pytest.raises(ModelError) as caught:
        remote_code(whole, Path("DIR"), trusted=False) or spec_of(whole)
    return caught.value


def test_the_supported_architectures_are_those_of_the_table() -> None:
    table = TEXT.partition("## What is refused")[0]
    assert re.findall(r"^\| `(\w+ForCausalLM)`", table, re.MULTILINE) == list(ARCHITECTURES)
    assert all(f"`{name}`" in table for name in (*_KINDS, *ACTIVATIONS))


def test_the_page_is_up_to_date() -> None:
    """`PYTHONPATH=tests python -m support.models_reference` writes it anew."""
    assert rewritten(TEXT) == TEXT


@pytest.mark.parametrize("family", ["smollm3", "qwen2_moe", "qwen3_moe"])
def test_the_pieces_and_passes_of_the_page_are_those_of_a_trace(family: str) -> None:
    known = json.loads(FACTS.read_text())
    assert facts_of(family) == known[FAMILIES[family]]


@pytest.mark.slow
def test_the_pieces_and_passes_of_all_architectures_are_those_of_a_trace() -> None:
    assert text_of(all_facts()) == FACTS.read_text()


def test_the_refused_architectures_and_their_reasons_are_those_of_the_code() -> None:
    table = TEXT.partition("## What is refused")[2]
    rows = re.findall(r"^\| `(\w+For\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert dict(rows) == REFUSED
    for name, reason in rows:
        assert reason in refused({"architectures": [name]}).why


def test_every_refused_setting_has_a_case_here() -> None:
    start, end = TEXT.index("| setting | error"), TEXT.index("By its files")
    shown = re.findall(r"^\| (.+?) \| ", TEXT[start:end], re.MULTILINE)
    assert shown[1:] == list(SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_refused_setting_gives_the_error_of_the_page(setting: str) -> None:
    error = next(row[1] for row in ROWS if row[0].removeprefix("| ") == setting)
    assert refused(SETTINGS[setting]).what == error


def test_the_dtypes_are_those_of_the_cpu() -> None:
    for dtype in Dtype:
        able = dtype in DTYPES_OF[Platform.CPU]
        assert f"| `{dtype.value}` | {'yes' if able else 'no'}" in TEXT
    facts: dict[str, Any] = {"positions": 8, "dtype": Dtype.FP16, "platform": Platform.CPU}
    assert resolve_model(ModelConfig("m"), **facts).dtype is Dtype.FP32
    with pytest.raises(DeviceError) as caught:
        resolve_model(ModelConfig("m", dtype=Dtype.FP16), **facts)
    assert int(caught.value.exit) == 3


def test_the_bindings_shown_are_those_of_the_demo() -> None:
    bindings = bindings_of(open_source("demo", weights="none").spec)
    block = TEXT.split("```text\n")[1].split("```")[0]
    shown = dict(line.split(maxsplit=1) for line in block.splitlines())
    assert {name: str(bindings[name]) for name in shown} == shown
