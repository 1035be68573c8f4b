"""Declared inputs of encoders and vision models: what cannot run is refused and never published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import write_redrawn
from support.flow import ask, built

from vcc.cache.errors import ModelError
from vcc.cache.store import Store
from vcc.engine.forecast import forecast
from vcc.engine.models.transformers_sources import forward_inputs
from vcc.engine.request import settle

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
TEXT = {**SIZES, "vocab_size": 60, "max_position_embeddings": 64}
NONE = {"compile": "none", "mode": "none"}
EAGER = {"config": json.dumps({"backend": "eager"}), "mode": "none"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import transformers as of

    made: dict[str, Any] = {
        "bert": of.BertModel(of.BertConfig(**TEXT)),
        "roberta": of.RobertaModel(of.RobertaConfig(**TEXT)),
        "vit": of.ViTForImageClassification(of.ViTConfig(**SIZES, image_size=32, patch_size=16)),
    }
    place = tmp_path_factory.mktemp("models")
    return {name: write_redrawn(place / name, model) for name, model in made.items()}


FIRST = "positions above max_position_embeddings (64)"


@pytest.mark.parametrize(
    ("model", "inputs", "told"),
    [
        ("bert", ["input_ids=N@1-8x4096"], FIRST),
        ("roberta", ["input_ids=N@1-8x63"], FIRST),
        ("bert", ["input_ids=4x16x3"], "(declared: input_ids=4x16x3:int64)"),
        ("bert", ["attention_mask=4x16"], "(declared: attention_mask=4x16:int64)"),
        ("vit", ["pixel_values=1x3x33x32"], "(declared: pixel_values=1x3x33x32)"),
        ("vit", ["pixel_values=1x3x16-32x32"], "(declared: pixel_values=1x3x16-32x32)"),
    ],
)
@pytest.mark.parametrize("options", [NONE, EAGER], ids=["none", "compiled"])
def test_a_model_that_does_not_run_on_its_inputs_is_not_built(
    options: dict[str, Any],
    model: str,
    inputs: list[str],
    told: str,
    models: dict[str, Path],
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path)
    asked = ask(models[model], inputs=inputs, **options)
    notes = " ".join(forecast(settle(asked), store).notes)
    assert "runs on their shapes" in notes
    with pytest.raises(ModelError) as caught:
        built(asked, store)
    assert told in f"{caught.value.what} {caught.value.why}"
    assert "remove the data-dependent branch" not in caught.value.hint
    assert not list(store.entries())


def test_what_runs_is_built_without_code(models: dict[str, Path], tmp_path: Path) -> None:
    for model in models.values():
        assert built(ask(model, **NONE), Store.open(tmp_path)).entry is not None


@pytest.mark.parametrize(
    ("model", "inputs", "told"),
    [
        ("bert", ["evil=3"], "BertModel has no input evil"),
        (
            "bert",
            ["input_ids=4x16", "attention_mask=2x16"],
            "attention_mask has other sizes than input_ids",
        ),
        ("vit", ["input_ids=1x4"], "ViTForImageClassification has no input input_ids"),
    ],
)
def test_a_forecast_refuses_inputs_that_the_forward_cannot_take(
    model: str, inputs: list[str], told: str, models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        forecast(settle(ask(models[model], inputs=inputs, **NONE)), Store.open(tmp_path))
    assert caught.value.what == told


def test_inputs_are_read_from_the_source_as_the_class_has_them() -> None:
    import inspect

    import transformers as of

    for name in ("BertModel", "RobertaForSequenceClassification", "ViTForImageClassification"):
        kind = getattr(of, name)
        found = forward_inputs(name, {"model_type": kind.config_class.model_type})
        plain = [
            one.name
            for one in inspect.signature(kind.forward).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        assert found is not None
        assert ["self", *found] == plain


def test_a_forward_that_is_taken_from_elsewhere_is_not_known() -> None:
    assert forward_inputs("NoSuchModel", {"model_type": "bert"}) is None
