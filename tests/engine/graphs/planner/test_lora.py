"""Adapters on the way to a GPU: two launches behind a projection, which a step may leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from support.flow import ask

from vcc.cache.store import Store
from vcc.engine.events import NullEvents
from vcc.engine.request import settle
from vcc.engine.verify_interpret import interpret

LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 48, "max_model_len": 64}
LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["llama", "qwen2", "phi3"])
def test_node_tables_with_adapters_compute_the_model_with_them_and_without(
    arch: str, tmp_path: Path
) -> None:
    """Every step twice: rows of both adapters and of none, and none at all, without their nodes."""
    config = {"architectures": [ARCHITECTURES[arch]], **SIZES, **OWN_SIZES[arch]}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    settled = settle(ask(tmp_path, weights="none", target="sm_90", dtype="fp32", **LIMITS, **LORA))
    found = interpret(settled, Store.open(tmp_path / "store"), (1, 11), NullEvents())
    assert found.outcome.mismatch is None
    assert len(found.outcome.steps) > 8
