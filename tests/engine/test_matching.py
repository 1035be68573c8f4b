"""Which artifacts answer: a GPU table plays every mode and size that it allows, others do not."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from support.steps import settings
from support.stores import manifest_of as plain_manifest

from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.finding import find
from vcc.engine.matching import answers, is_planned, play_of, without_graphs
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, Settled, look_up, request_pairs, settle
from vcc.engine.runtime.settings import AS_MADE, Play
from vcc.engine.session import Session

MODES = tuple(mode.value for mode in GraphMode)


def asked(target: str = "sm_90", **compilation: object) -> Settled:
    model = parse_model({"source": "demo", "max_num_batched_tokens": 64})
    config, to = parse_config(compilation), Target.parse(target)
    return settle(BuildRequest(open_source("demo"), model, config, ParallelConfig(), to))


def published(store: Store, settled: Settled, created: int = 1, loader: str = "Player") -> Entry:
    pairs, open_fields = request_pairs(settled)
    manifest = plain_manifest(request=tuple(sorted(pairs.items())), open_fields=open_fields)
    rules = {"loader": loader} | ({"tables": "2"} if loader == "Player" else {})
    manifest = msgspec.structs.replace(manifest, host_rules=rules, created=created)
    return store.publish(manifest, {"table/step": b"%d" % created})


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path)


@pytest.mark.parametrize("made", MODES)
def test_one_gpu_artifact_answers_every_mode(store: Store, made: str) -> None:
    entry = published(store, asked(cuda_graph_mode=made))
    assert is_planned(entry)
    for mode in MODES:
        settled = asked(cuda_graph_mode=mode)
        assert find(Session(settled, store)).entries == (entry,)
    assert find(Session(asked(capture_sizes=[3, 64]), store)).entries == (entry,)


def test_the_artifact_that_was_made_for_a_mode_comes_first(store: Store) -> None:
    full = published(store, asked(cuda_graph_mode="full"), created=1)
    none = published(store, asked(cuda_graph_mode="none"), created=2)
    for mode, order in (
        ("full", (full, none)),
        ("none", (none, full)),
        ("piecewise", (none, full)),
    ):
        assert find(Session(asked(cuda_graph_mode=mode), store)).entries == order


@pytest.mark.parametrize(
    ("target", "compilation", "loader"),
    [
        ("cpu", {}, "AOTIModelPackageLoader"),
        ("sm_90", {"mode": "NO_COMPILATION"}, "Player"),
        ("sm_90", {"splitting_ops": []}, "Player"),
    ],
    ids=["cpu", "recorded", "not cut"],
)
def test_others_answer_for_what_they_were_made(
    store: Store, target: str, compilation: dict[str, object], loader: str
) -> None:
    made = asked(target, cuda_graph_mode="full_decode_only", **compilation)
    entry = published(store, made, loader=loader)
    stated = {"config.cuda_graph_mode": "piecewise"}
    assert answers(entry, look_up(made)[1])
    assert not answers(entry, stated)


def test_what_is_no_graph_must_still_be_as_stated(store: Store) -> None:
    entry = published(store, asked(cuda_graph_mode="full"))
    wanted = {"config.cuda_graph_mode": "none", "model.max_num_batched_tokens": "128"}
    assert not answers(entry, wanted)
    assert without_graphs(wanted) == {"model.max_num_batched_tokens": "128"}
    assert answers(entry, {"config.capture_sizes": "[64]"})
    assert not answers(entry, {"config.capture_sizes": "[65]"}), "larger than its steps"


def test_what_the_user_says_is_played() -> None:
    own = settings(GraphMode.FULL, (1, 2), max_seqs=4)
    own = replace(own, compilation=replace(own.compilation, mode=CompileMode.VCC_COMPILE))
    assert own.playing(AS_MADE) is own
    assert own.playing(play_of(asked())) is own
    found = own.playing(play_of(asked(cuda_graph_mode="none"))).compilation
    assert (found.cuda_graph_mode, found.capture_sizes) == (GraphMode.NONE, (1, 2))
    found = own.playing(play_of(asked(capture_sizes=[3]))).compilation
    assert (found.cuda_graph_mode, found.capture_sizes) == (GraphMode.FULL, (3,))


def test_an_artifact_without_sizes_takes_the_usual_ones_that_it_holds() -> None:
    own = settings(GraphMode.NONE, (), max_seqs=4)
    most = own.model.max_num_batched_tokens or 0
    own = replace(own, compilation=replace(own.compilation, mode=CompileMode.VCC_COMPILE))
    found = own.playing(Play(GraphMode.FULL, None, (1, most, most + 1))).compilation
    assert found.capture_sizes == (1, most)
    recorded = replace(own, compilation=replace(own.compilation, mode=CompileMode.NO_COMPILATION))
    assert recorded.playing(Play(GraphMode.FULL)) is recorded
