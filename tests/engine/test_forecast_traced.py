"""Forecasts for models of transformers say what a run would say of this very checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.flow import ask, built
from support.traced_checkpoints import make_traced

from vcc.cache.errors import MissingArtifact, ModelError
from vcc.cache.store import Store
from vcc.engine.forecast import Work, forecast
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.models.transformers.bound import traced_bindings
from vcc.engine.prewarm.run import stored
from vcc.engine.request import settle
from vcc.engine.session import Session, open_session

EAGER = {"compile": "none", "mode": "none"}
MATRIX = "transformer.h.0.attn.c_attn.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gpt2")
    return make_traced(place, "GPT2LMHeadModel", num_hidden_layers=1)


def changed(checkpoint: Path, place: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The same checkpoint with other tensors."""
    shutil.copytree(checkpoint, place)
    tensors = load_file(place / "model.safetensors")
    change(tensors)
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    return place


def test_an_artifact_that_reads_what_the_checkpoint_lacks_is_no_hit(
    checkpoint: Path, tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "store")
    built(ask(checkpoint, **EAGER), store)
    there = forecast(settle(ask(checkpoint, **EAGER)), store)
    assert {part.hit for part in there.parts} == {True}
    lacking = changed(checkpoint, tmp_path / "model", lambda tensors: tensors.pop(MATRIX))
    settled = settle(ask(lacking, **EAGER))
    found = forecast(settled, store)
    parts = {part.name: part.hit for part in found.parts}
    assert parts == {"request": False, "code key": True, "plan key": False, "tier local": False}
    assert found.work is Work.PLAN
    assert "whether the weights are all that" in found.notes[-1]
    with pytest.raises(MissingArtifact) as caught:
        open_session(Session(settled, store, require_warm=True), ())
    assert caught.value.why == found.part("request").detail
    assert "bindings read tensors that this checkpoint has not" in caught.value.why


def test_a_prewarm_of_such_a_checkpoint_is_missing(checkpoint: Path, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    built(ask(checkpoint, **EAGER), store)
    assert stored(settle(ask(checkpoint, **EAGER)), store)[0] is not None
    lacking = changed(checkpoint, tmp_path / "model", lambda tensors: tensors.pop(MATRIX))
    entry, why = stored(settle(ask(lacking, **EAGER)), store)
    assert entry is None
    assert "has another plan over the same code" in why


@pytest.mark.parametrize(
    ("dtype", "why"),
    [
        (torch.float8_e4m3fn, "float8_e4m3fn, the config has it in 16 bits or more"),
        (torch.int8, "int8, weights are floating-point"),
    ],
)
def test_a_weight_of_a_quantised_dtype_is_refused_from_its_header(
    dtype: torch.dtype, why: str, checkpoint: Path, tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "store")
    other = changed(
        checkpoint, tmp_path / "model", lambda one: one.update({MATRIX: one[MATRIX].to(dtype)})
    )
    settled = settle(ask(other, **EAGER))
    for refused in (lambda: forecast(settled, store), lambda: built(settled.request, store)):
        with pytest.raises(ModelError, match="and the weights disagree") as caught:
            refused()
        assert caught.value.why == f"{MATRIX} is {why}"
    assert not store.root.exists(), "nothing is published"


def test_a_build_knows_weights_from_buffers_by_the_model(checkpoint: Path) -> None:
    """The header alone does not tell what a tensor of whole numbers is."""
    source = settle(ask(checkpoint, **EAGER)).request.source
    odd = TensorInfo("int8", source.tensors[MATRIX].shape)
    with pytest.raises(ModelError, match="and the weights disagree") as caught:
        traced_bindings(source.spec, {**source.tensors, MATRIX: odd})  # type: ignore[arg-type]
    assert f"{MATRIX} is int8" in caught.value.why
