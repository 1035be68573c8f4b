"""Compile modes and graph modes change how a step runs, never what it answers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.flow import Narrow, answers, ask, booted, built, draw_prompts, kept_environment

from vcc.cache.errors import ConfigError
from vcc.cache.manifest import Manifest
from vcc.cache.store import Store
from vcc.engine.config.modes import GraphMode
from vcc.engine.monitor import Counters
from vcc.engine.request import settle
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.session import Session, open_session

GRAPH_MODES = tuple(mode.value for mode in GraphMode)
PROMPTS = draw_prompts((1, 3, 17, 40, 128), 2048)
NEW = 12
DEMO: dict[str, Any] = {"dtype": "fp32", "max_num_seqs": 8, "max_num_batched_tokens": 128}
"""The demo in fp32, where other code for the same sum must not change a token."""

OPS = ("rms_norm", "silu_and_mul", "rotary_embedding")
WAYS = {
    "cut": {"mode": "VCC_COMPILE", "custom_ops": ["none"]},
    "one piece": {"mode": "DYNAMO_TRACE_ONCE"},
    "custom ops": {"mode": "VCC_COMPILE", "custom_ops": ["none", *(f"+{op}" for op in OPS)]},
    "eager": {"mode": "NO_COMPILATION"},
}
"""All ways to make a step that an artifact can hold."""

UNCUT_PIECES = (("one piece", "piecewise"),)


def asked(way: str, **options: Any):
    return ask("demo", **DEMO, config=json.dumps(WAYS[way]), **options)


@pytest.fixture(scope="module")
def store(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the demo made in all ways, in the default graph mode."""
    for way in WAYS:
        built(asked(way), Store.open(shelf))
    return Store.open(Path(shutil.copytree(shelf, tmp_path_factory.mktemp("modes") / "store")))


@pytest.fixture(scope="module")
def runner(store: Store) -> ModelRunner:
    """Cut at attention, with all graphs: what the others are compared with."""
    return booted(asked("cut"), store).runner


@pytest.fixture(scope="module")
def wanted(runner: ModelRunner) -> list[list[int]]:
    """The answers of each prompt alone."""
    return [answers(runner, [prompt], NEW)[0] for prompt in PROMPTS]


@pytest.mark.parametrize(
    ("way", "mode"),
    [(way, mode) for way in WAYS for mode in GRAPH_MODES if (way, mode) not in UNCUT_PIECES],
    ids=str,
)
def test_every_way_and_graph_mode_answers_the_same(
    store: Store, wanted: list[list[int]], way: str, mode: str
) -> None:
    """A change of the graph mode finds the compiled code that is there."""
    request, counters = asked(way, mode=mode), Counters()
    hits = {} if way == "eager" else {"hits": 1, "misses": 0}
    with counters.expect(compiles=0, traces=0, **hits):
        built(request, store, counters)
    assert answers(booted(request, store).runner, PROMPTS, NEW) == wanted


@pytest.mark.parametrize(("way", "mode"), UNCUT_PIECES, ids=str)
def test_piecewise_graphs_of_what_is_not_cut_are_refused(way: str, mode: str) -> None:
    with pytest.raises(ConfigError, match="needs pieces"):
        settle(asked(way, mode=mode))


def test_stock_torch_compile_answers_the_same(tmp_path: Path, wanted: list[list[int]]) -> None:
    request = ask("demo", **DEMO, compile="stock")
    session = Session(settle(request), Store.open(tmp_path / "store"))
    with kept_environment():
        found = answers(open_session(session).booted.runner, PROMPTS, NEW)
    assert found == wanted
    assert session.counters["compiles"] == 1
    assert not list(session.store.entries())


@pytest.mark.parametrize(
    ("mode", "decode", "mixed", "captures"),
    [
        ("none", "none", "none", 0),
        ("piecewise", "piecewise", "piecewise", 4 * 5),
        ("full", "full", "full", 4),
        ("full_decode_only", "full", "none", 4),
        ("full_and_piecewise", "full", "piecewise", 4 * 6),
    ],
)
def test_steps_run_in_the_graphs_that_the_mode_names(
    store: Store, mode: str, decode: str, mixed: str, captures: int
) -> None:
    """Row W5: 4 layers are 5 pieces, so 4 sizes have 20 graphs of pieces, 4 of the whole step."""
    request = asked("cut", mode=mode, shapes=None if mode == "none" else "1,2,4,8")
    built(request, store)
    runner = booted(request, store).runner
    answers(runner, PROMPTS[1:2], 4)  # three tokens in one step, then three steps of decode
    assert dict(runner.stat.summary().modes) == Counter([mixed] + [decode] * 3)
    assert runner.gate.captures == captures


def test_the_custom_ops_are_called_inside_the_pieces(store: Store) -> None:
    with_ops, plain = (_manifest(store, way) for way in ("custom ops", "cut"))
    assert _tables(plain) == []
    loaded = store.load(store.find(*_looked_up("custom ops"))[0])
    text = "".join(bytes(loaded.read(name)).decode() for name in _tables(with_ops))
    # Rope is done by the KV write, which the pieces are cut at.
    assert {op for op in OPS if f"vcc::{op}" in text} == {"rms_norm", "silu_and_mul"}
    assert b"vcc::rope_kv_write" in bytes(loaded.read("program"))


def test_one_piece_holds_the_whole_step(store: Store) -> None:
    assert [piece["calls"] for piece in _manifest(store, "one piece").info["pieces"]] == [1]
    assert sorted(p["calls"] for p in _manifest(store, "cut").info["pieces"]) == [1, 1, 3]


def _looked_up(way: str):
    from vcc.engine.request import look_up

    return look_up(settle(asked(way)))


def _manifest(store: Store, way: str) -> Manifest:
    return store.load(store.find(*_looked_up(way))[0]).manifest


def _tables(manifest: Manifest) -> list[str]:
    """The tables of the operators that pieces call."""
    return [n for n in manifest.blobs if n.startswith("piece/") and n.endswith(".json")]


def test_a_batch_answers_each_prompt_as_if_it_were_alone(
    runner: ModelRunner, wanted: list[list[int]]
) -> None:
    assert answers(runner, PROMPTS, NEW) == wanted
    assert answers(runner, PROMPTS[::-1], NEW) == wanted[::-1]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 8},  # prompts are cut in pieces of at most a step
        {"max_tokens": 16, "max_seqs": 3},  # answers end and others begin beside them
        {"max_tokens": 32, "num_blocks": 16},  # blocks run out and are taken from the youngest
    ],
    ids=lambda limits: "-".join(limits),
)
def test_many_prompts_in_narrow_steps_answer_the_same(
    runner: ModelRunner, limits: dict[str, int]
) -> None:
    prompts = draw_prompts((1, 30, 2, 90, 5, 17, 16, 15, 64, 3, 33, 8, 1, 40), 2048, seed=3)
    alone = [answers(runner, [prompt], 20)[0] for prompt in prompts]
    narrow = Narrow(runner, replace(runner.limits, **limits))
    assert answers(narrow, prompts, 20) == alone
