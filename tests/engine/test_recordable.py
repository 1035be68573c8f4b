"""Hints name what works: nobody is sent to a recording that is refused, nor back from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.flow import ask

from vcc.cache.errors import ConfigError
from vcc.cache.store import Store
from vcc.engine.forecast import forecast
from vcc.engine.graphs.planner.refusal import NoTable, hints_for, refused
from vcc.engine.recordable import why_not_recorded
from vcc.engine.request import Settled, settle

SIZES = {
    "vocab_size": 160,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


def settled(place: Path, architecture: str, kind: str, **options: Any) -> Settled:
    config = {"architectures": [architecture], "model_type": kind, **SIZES}
    (place / "config.json").write_text(json.dumps(config))
    return settle(ask(place, weights="none", **options))


def test_an_encoder_is_planned_for_a_gpu_and_not_recorded(tmp_path: Path) -> None:
    asked = settled(tmp_path, "BertModel", "bert", target="sm_90", compile="none")
    with pytest.raises(ConfigError) as caught:
        forecast(asked, Store.open(tmp_path / "store"))
    assert "--compile vcc, which makes node tables without a GPU" in caught.value.hint
    for target in ("sm_90", "cpu"):
        there = settled(tmp_path, "BertModel", "bert", target=target)
        assert forecast(there, Store.open(tmp_path / "store")).missing


@pytest.mark.parametrize(
    ("architecture", "kind", "options", "hint"),
    [
        ("GPTNeoXForCausalLM", "gpt_neox", {}, "compile it for the CPU: --target cpu"),
        ("LlamaForCausalLM", "llama", {"enable_lora": True}, "--target cpu"),
        ("LlamaForCausalLM", "llama", {}, "--compile none"),
    ],
)
def test_what_no_table_holds_is_not_sent_to_a_recording_that_is_refused(
    architecture: str, kind: str, options: dict[str, Any], hint: str, tmp_path: Path
) -> None:
    asked = settled(tmp_path, architecture, kind, target="sm_90", dtype="bf16", **options)
    with pytest.raises(NoTable) as caught, hints_for(asked):
        raise refused("piece 0", "aten.addmm.out")
    assert hint in caught.value.hint
    assert ("--compile none" in caught.value.hint) is not bool(why_not_recorded(asked))
