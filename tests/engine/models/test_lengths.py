"""The length of a long-rope model is its original one by every door, and says what answers."""

from __future__ import annotations

import json

import pytest
from support.checkpoints import make_checkpoint

from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.lengths import computes_by_length, positions_of, usual_length
from vcc.engine.models.source import Source, open_source
from vcc.engine.request import BuildRequest, Settled, look_up, settle

ORIGINAL = 256


@pytest.fixture(scope="module")
def phi(tmp_path_factory: pytest.TempPathFactory) -> Source:
    place = make_checkpoint(tmp_path_factory.mktemp("phi"), "phi3")
    config = json.loads((place / "config.json").read_text())
    assert config["max_position_embeddings"] > ORIGINAL
    return open_source(str(place))


def settled(source: Source, **model: int) -> Settled:
    request = BuildRequest(
        source=source,
        model=parse_model({"source": source.name, **model}),
        compilation=parse_config(None),
        parallel=ParallelConfig(),
        target=Target.parse("cpu"),
    )
    return settle(request)


def test_what_a_build_settles_again_is_what_the_look_up_settled(phi: Source) -> None:
    first = settled(phi)
    again = settle(first.request)
    assert first.model.max_model_len == again.model.max_model_len == ORIGINAL
    assert look_up(first) == look_up(again)
    assert first.request.source.spec.ropes == again.request.source.spec.ropes


@pytest.mark.parametrize(("said", "length"), [({}, ORIGINAL), ({"max_model_len": 300}, 300)])
def test_code_for_another_length_does_not_answer(
    phi: Source, said: dict[str, int], length: int
) -> None:
    _, stated = look_up(settled(phi, **said))
    assert stated["model.max_model_len"] == str(length)


def test_other_models_leave_the_length_open() -> None:
    demo = open_source("demo", weights="none")
    assert not computes_by_length(demo)
    assert usual_length(demo) == positions_of(demo)
    assert look_up(settled(demo))[1] == {}


def test_a_settled_source_is_asked_as_an_open_one(phi: Source) -> None:
    long = phi.for_length(300)
    assert usual_length(long) == usual_length(phi) == ORIGINAL
    assert computes_by_length(long)
    assert positions_of(long) == positions_of(phi) > ORIGINAL
