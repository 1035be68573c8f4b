"""An artifact holds code and no weights: one serves every checkpoint of its shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import make_checkpoint, reference_logits

Vcc = Callable[..., Any]

PROMPT = "w5 w6 w7 w30 w31 w32 w33"
RUN = ("--prompt", PROMPT, "--max-new-tokens", "8", "--ignore-eos", "--json", "--require-warm")
ONE_PIECE = ("--compilation-config", '{"mode": "DYNAMO_TRACE_ONCE"}')
"""One piece is the quickest artifact to build."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two checkpoints of equal shapes: one file and three."""
    place = tmp_path_factory.mktemp("models")
    return [
        make_checkpoint(place / "first", "llama", seed=1),
        make_checkpoint(place / "second", "llama", seed=2, shards=3),
    ]


def greedy(model: Path, prompt: Sequence[int], new: int) -> list[int]:
    """What transformers answers."""
    tokens = list(prompt)
    for _ in range(new):
        tokens.append(int(reference_logits(model, tokens, "float32")[-1].argmax()))
    return tokens[len(prompt) :]


def test_an_artifact_built_without_weights_answers_for_every_checkpoint(
    vcc: Vcc, models: list[Path], tmp_path: Path
) -> None:
    shapes = tmp_path / "shapes"
    shapes.mkdir()
    (shapes / "config.json").write_bytes((models[0] / "config.json").read_bytes())
    store = tmp_path / "store"
    built = vcc("compile", shapes, "--weights", "none", *ONE_PIECE, "--json", store=store)
    assert built.code == 0, built.out
    answers = []
    for model in models:
        done = vcc("run", model, *RUN, store=store)
        assert done.code == 0, done.out
        assert done.json["counters"]["hits"] == 1
        answers.append(done.json["prompts"][0]["token_ids"])
        assert answers[-1] == greedy(model, [5, 6, 7, 30, 31, 32, 33], 8)
    assert answers[0] != answers[1]


def test_a_checkpoint_of_other_shapes_is_a_miss_that_names_them(
    vcc: Vcc, models: list[Path], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert vcc("compile", models[0], "--compile", "none", store=store).code == 0
    other = make_checkpoint(tmp_path / "other", "llama", num_hidden_layers=2)
    done = vcc("run", other, *RUN, store=store)
    assert (done.code, done.json["error"]["id"]) == (1, "MISSING_ARTIFACT")
    assert "model.digest" in done.json["error"]["why"]
