"""Each turn of a conversation sees the turns before, and a turn that fails is forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from support.fake_engine import install
from support.fake_runner import FakeRunner

from vcc.cache.errors import UsageError
from vcc.cache.store import Store
from vcc.engine import conversation
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.conversation import Conversation
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, settle
from vcc.engine.runtime.defaults import Overrides
from vcc.engine.session import Session


@pytest.fixture
def engine(monkeypatch):
    return install(monkeypatch)


@pytest.fixture
def talk(tmp_path, engine):
    request = BuildRequest(
        source=open_source("demo"),
        model=parse_model({"source": "demo"}),
        compilation=parse_config(None),
        parallel=ParallelConfig(),
        target=Target.parse("cpu"),
    )
    overrides = Overrides(max_new_tokens=4, ignore_eos=True)
    return Conversation(Session(settle(request), Store.open(tmp_path)), overrides)


@pytest.fixture
def asked(monkeypatch):
    """Token ids of every request."""
    seen, real = [], conversation.generate

    def generate(runner, requests):
        seen.append(requests[0])
        return real(runner, requests)

    monkeypatch.setattr(conversation, "generate", generate)
    return seen


def test_a_turn_sees_the_turns_before(talk, asked):
    parts = []
    first = talk.say("Hello", parts.append)
    talk.say("And then?", parts.append)
    assert "".join(parts).startswith(first.text)
    assert len(asked[1].token_ids) > len(asked[0].token_ids) + 4
    assert [request.index for request in asked] == [0, 1]
    report = talk.report()
    assert [answer.prompt for answer in report.answers] == ["Hello", "And then?"]
    assert report.first_token_seconds is not None


class NanRunner(FakeRunner):
    def step(self, batch):
        return super().step(batch) * np.float32("nan")


def test_a_turn_from_logits_that_are_not_finite_is_told(engine, request):
    engine.runner = NanRunner
    talk = request.getfixturevalue("talk")
    assert talk.say("Hello", lambda part: None).not_finite == 4
    (note,) = [one for one in talk.report().notes if "infinity" in one]
    assert note.startswith("turn 0: logits of 4 of 4 tokens")


def test_a_turn_that_fails_is_forgotten(talk, asked):
    talk.say("Hello", lambda part: None)
    with pytest.raises(UsageError, match="too long"):
        talk.say("x y " * 600, lambda part: None)
    talk.say("Hello", lambda part: None)
    assert len(asked[2].token_ids) < 200
    assert len(talk.report().answers) == 2
