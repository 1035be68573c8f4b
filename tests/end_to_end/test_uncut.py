"""A mode of pieces over splitting ops that the model does not call: told, kept, and not silent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.flow import answers, ask, booted, built, draw_prompts

from vcc.cache.care.prune import items_of
from vcc.cache.store import Store
from vcc.engine.events import NotedEvents, NullEvents
from vcc.engine.monitor import Counters
from vcc.engine.request import settle
from vcc.engine.runtime.boot import Booted
from vcc.engine.session import Session, open_session

DEMO: dict[str, Any] = {"dtype": "fp32", "max_num_seqs": 4, "max_num_batched_tokens": 64}
NOTHING = {"splitting_ops": ["aten::gelu"]}
PROMPTS = draw_prompts((3, 9), 2048)
WHY = "(no splitting op is called, so the graph is not cut and there are no pieces)"


def asked(graphs: str, **config: Any) -> Any:
    return ask("demo", **DEMO, mode=graphs, shapes="1,2,4,16", config=json.dumps(NOTHING | config))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("uncut") / "store")


@pytest.mark.parametrize(("mode", "now"), [("piecewise", "none"), ("full_and_piecewise", "full")])
def test_the_mode_that_is_left_is_in_the_artifact_and_told_by_each_boot(
    store: Store, mode: str, now: str
) -> None:
    request = asked(mode, backend="eager")
    made = built(request, store)
    manifest, entry = made.loaded.manifest, made.entry
    assert entry is not None
    told = f"cuda_graph_mode: {mode} → {now} {WHY}"
    assert manifest.info["compilation"]["cuda_graph_mode"] == now
    assert manifest.info["overruled"] == [told]
    assert told in manifest.info["reasons"]
    assert f" · {now} · " in manifest.title
    (item,) = (one for one in items_of(store.root).items if one.artifact == entry.artifact)
    assert item.shown["config.cuda_graph_mode"] == now
    assert dict(manifest.request)["config.cuda_graph_mode"] == mode
    events = NotedEvents(NullEvents())
    session = Session(settle(request), store, require_warm=True, events=events)
    found = open_session(session).booted
    assert told in session.notes
    assert found.runner.mode.value == now
    answers(found.runner, PROMPTS, 4)
    assert _fallbacks(found) == ({told: 4} if now == "none" else {})


def _fallbacks(found: Booted) -> Any:
    counters = Counters()
    found.account(counters)
    return counters.as_dict()["fallbacks"]


def test_the_same_code_under_another_mode_has_no_cut_either(store: Store) -> None:
    built(asked("full", backend="eager"), store)
    again = built(asked("piecewise", backend="eager"), store)
    assert again.reused
    assert again.loaded.manifest.info["compilation"]["cuda_graph_mode"] == "none"


def test_eager_steps_that_nothing_breaks_are_told(store: Store) -> None:
    plain = ask("demo", **DEMO, mode="none", compile="none")
    built(plain, store)
    wanted = answers(booted(plain, store).runner, PROMPTS, 4)
    request = asked("piecewise", mode="none")
    built(request, store)
    session = Session(settle(request), store, require_warm=True, events=NotedEvents(NullEvents()))
    runner = open_session(session).booted.runner
    told = "no splitting op is called, so each piecewise graph is the whole step"
    assert told in session.notes
    assert {one["graphs"] for one in runner.graph_list()} == {1}
    assert answers(runner, PROMPTS, 4) == wanted
