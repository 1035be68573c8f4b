"""`--compile none` in every graph mode: eager steps as segments answer what the model answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.flow import answers, ask, booted, built, draw_prompts

from vcc.cache.errors import ConfigError
from vcc.cache.store import Store
from vcc.engine.config.modes import GraphMode
from vcc.engine.models.decoder import Decoder
from vcc.engine.request import settle

PROMPTS = draw_prompts((1, 3, 17, 40), 2048)
NEW = 8
DEMO: dict[str, Any] = {
    "dtype": "fp32",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "compile": "none",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("eager") / "store")


@pytest.fixture(scope="module")
def wanted(store: Store) -> list[list[int]]:
    request = ask("demo", **DEMO, mode="none")
    built(request, store)
    return answers(booted(request, store).runner, PROMPTS, NEW)


@pytest.mark.parametrize(
    ("mode", "captures"),
    [("piecewise", 4 * 5), ("full_and_piecewise", 4 * 5 + 3), ("full", 4), ("full_decode_only", 3)],
)
def test_every_graph_mode_answers_the_same(
    store: Store, wanted: list[list[int]], mode: str, captures: int
) -> None:
    """W5 of eager steps: 4 layers are 5 segments around attention, for each of 4 sizes."""
    request = ask("demo", **DEMO, mode=mode, shapes="1,2,4,8")
    built(request, store)
    runner = booted(request, store).runner
    assert runner.gate.captures == captures
    assert answers(runner, PROMPTS, NEW) == wanted
    used = dict(runner.stat.summary().modes)
    assert used.get(GraphMode(mode).decode_part.value)
    assert runner.gate.captures == captures, "serving captures nothing"


def test_a_replay_does_not_call_the_model(
    store: Store, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask("demo", **DEMO, mode="piecewise", shapes="1,2,4,8,64")
    built(request, store)
    runner = booted(request, store).runner
    calls: list[int] = []
    forward = Decoder.forward

    def counted(self: Decoder, *args: Any) -> Any:
        calls.append(1)
        return forward(self, *args)

    monkeypatch.setattr(Decoder, "forward", counted)
    assert answers(runner, PROMPTS, NEW) == wanted
    assert calls == []
    assert {one["graphs"] for one in runner.graph_list()} == {5}


def test_breaks_of_your_own(store: Store, wanted: list[list[int]]) -> None:
    config = '{"splitting_ops": ["torch.ops.vcc.paged_attention"]}'
    request = ask("demo", **DEMO, mode="piecewise", shapes="1,2,4", config=config)
    built(request, store)
    runner = booted(request, store).runner
    assert runner.gate.captures == 3 * 5
    assert answers(runner, PROMPTS, NEW) == wanted


def test_d17_without_segments_piecewise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D17: a module has no step that could be recorded in segments."""
    (tmp_path / "plain.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.ReLU()\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="needs pieces"):
        settle(ask("plain:make", inputs=("x=4x8",), compile="none", mode="piecewise"))
