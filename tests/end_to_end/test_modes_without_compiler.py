"""Every compile mode in every graph mode on the CPU, with back ends that need no C++ compiler."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.flow import answers, ask, booted, built, draw_prompts, kept_environment

from vcc.cache.errors import ConfigError
from vcc.cache.store import Store
from vcc.engine.config.modes import GraphMode
from vcc.engine.monitor import Counters
from vcc.engine.request import settle
from vcc.engine.runtime.range_step import StepCode
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.session import Session, open_session

DEMO: dict[str, Any] = {"dtype": "fp32", "max_num_seqs": 4, "max_num_batched_tokens": 64}
PROMPTS = draw_prompts((1, 3, 17, 40, 60), 2048)
NEW = 8
SIZES = "1,2,4,8,16"

WAYS: dict[str, dict[str, Any]] = {
    "cut": {"mode": "VCC_COMPILE", "backend": "eager"},
    "ranges": {
        "mode": "VCC_COMPILE",
        "backend": "eager",
        "compile_ranges": [8, 32],
        "compile_sizes": [16, 48],
    },
    "one list": {"mode": "DYNAMO_TRACE_ONCE", "backend": "eager"},
    "eager": {"mode": "NO_COMPILATION"},
    "stock": {"mode": "STOCK_TORCH_COMPILE", "backend": "eager"},
}
PIECEWISE = frozenset({"cut", "ranges", "eager"})
"""Ways that have pieces or segments."""


def asked(way: str, mode: str) -> Any:
    shapes = None if mode == "none" else SIZES
    return ask("demo", **DEMO, config=json.dumps(WAYS[way]), mode=mode, shapes=shapes)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("modes") / "store")


def runner_of(way: str, mode: str, store: Store) -> ModelRunner:
    request = asked(way, mode)
    if way == "stock":  # compiled in process: there is nothing to store
        with kept_environment():
            return open_session(Session(settle(request), store)).booted.runner
    built(request, store)
    return booted(request, store).runner


@pytest.fixture(scope="module")
def wanted(store: Store) -> list[list[int]]:
    """The model's own answers, each prompt alone."""
    runner = runner_of("eager", "none", store)
    return [answers(runner, [prompt], NEW)[0] for prompt in PROMPTS]


CASES = [
    (way, mode.value)
    for way in WAYS
    for mode in GraphMode
    if mode is not GraphMode.PIECEWISE or way in PIECEWISE
]


@pytest.mark.parametrize(("way", "mode"), CASES, ids=str)
def test_every_pair_answers_as_the_model_does(
    store: Store, wanted: list[list[int]], way: str, mode: str
) -> None:
    runner = runner_of(way, mode, store)
    assert answers(runner, PROMPTS, NEW) == wanted
    used = {name for name, _ in runner.stat.summary().modes}
    resolved = settle(asked(way, mode)).resolved.config.cuda_graph_mode or GraphMode.NONE
    assert resolved.decode_part.value in used
    assert used <= {"none", resolved.decode_part.value, resolved.mixed_part.value}


@pytest.mark.parametrize("way", sorted(WAYS.keys() - PIECEWISE))
def test_piecewise_graphs_of_what_is_not_cut_are_refused(way: str) -> None:
    with pytest.raises(ConfigError, match="needs pieces"):
        settle(asked(way, "piecewise"))


def test_another_graph_mode_finds_the_lists_that_are_there(store: Store) -> None:
    runner_of("ranges", "none", store)
    counters = Counters()
    with counters.expect(compiles=0, traces=0, passes=0):
        built(asked("ranges", "piecewise"), store, counters)


def test_a_step_runs_in_the_program_of_its_size_the_exact_one_first(store: Store) -> None:
    runner = runner_of("ranges", "none", store)
    ran: list[tuple[int, int]] = []
    for step in runner._steps:
        step.code.binder.calls = _noting(ran, step.code)
    assert [(one.low, one.high) for one in runner._steps] == [
        *((1, 8), (9, 32), (33, 64)),
        *((16, 16), (48, 48)),
    ]
    for length, place in ((16, (16, 16)), (17, (9, 32)), (48, (48, 48)), (60, (33, 64))):
        ran.clear()
        answers(runner, draw_prompts((length,), 2048), 1)
        assert set(ran) == {place}


def _noting(ran: list[tuple[int, int]], code: StepCode) -> Any:
    calls = code.binder.calls

    def noting(sizes: tuple[int, ...]) -> Any:
        ran.append((code.low, code.high))
        return calls(sizes)

    return noting
