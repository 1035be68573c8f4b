"""What a node table cannot hold is named, with the recorder as the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch._inductor.config as inductor
from support.cuda_child import _import_inductor
from support.flow import ask, built

from vcc.cache.errors import CompileError
from vcc.cache.store import Store
from vcc.engine.graphs.planner.refusal import refused


@pytest.mark.skipif(
    not hasattr(inductor, "fallback_by_default"), reason="this torch falls back for no option"
)
def test_a_decoder_with_an_operator_of_aten_is_refused_by_its_name(tmp_path: Path) -> None:
    _import_inductor()
    config = '{"inductor_config": {"fallback_by_default": true}}'
    store = Store.open(tmp_path / "store")
    with pytest.raises(CompileError) as caught:
        built(ask("demo", target="sm_90", config=config), store)
    error = caught.value
    assert "a node table cannot express aten.embedding.default" in error.what
    assert error.what.startswith("piece ")
    assert "--compile none" in error.hint
    assert list(store.entries()) == []


@pytest.mark.parametrize("there", [True, False])
def test_where_there_is_a_gpu_the_recorder_can_be_used_at_once(tmp_path: Path, there: bool) -> None:
    gpu = tmp_path / "nvidiactl"
    if there:
        gpu.touch()
    hint = refused("piece 0", "aten.sort.default", gpu=gpu).hint
    assert ("on a machine with a GPU" in hint) != there
    assert "--compile none" in hint
