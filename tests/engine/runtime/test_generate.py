"""Any batch, any budget: each prompt gets the tokens it would get alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_runner import BrokenRunner, FakeRunner, limits, logits_of

from vcc.cache.errors import UsageError
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.requests import Finish, Request
from vcc.engine.runtime.sample import SamplingParams, sample


def _by_definition(request, context, vocab):
    """The answer computed without pages, batches or a scheduler."""
    history, answer = list(request.token_ids), []
    while True:
        token = sample(logits_of(history, vocab), request.params, request.index, len(answer))
        history.append(token)
        answer.append(token)
        if token in request.eos:
            return answer, Finish.STOP
        if len(answer) == request.max_new_tokens:
            return answer, Finish.LENGTH
        if len(history) == context:
            return answer, Finish.CONTEXT


def _answers(runner, requests):
    tokens, finishes = {}, {}
    for event in generate(runner, requests):
        assert event.step == len(tokens.setdefault(event.request, []))
        assert event.request not in finishes
        tokens[event.request].append(event.token)
        if event.finish:
            finishes[event.request] = event.finish
    return {index: (tokens[index], finishes[index]) for index in tokens}


prompts = st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=19), min_size=1, max_size=7)
budgets = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 24),
        "max_seqs": st.integers(1, 5),
        "block_size": st.integers(1, 8),
        "num_blocks": st.integers(4, 16),  # tight: preemption is the rule
        "max_blocks_per_seq": st.integers(4, 16),
        "max_model_len": st.integers(4, 40),
    }
)


@settings(max_examples=60, deadline=None)
@given(prompts, budgets, st.sampled_from([0.0, 1.3]), st.integers(1, 25), st.data())
def test_any_interleaving_gives_each_prompt_its_own_tokens(texts, budget, temperature, new, data):
    step_limits = limits(**budget)
    params = SamplingParams(temperature, seed=data.draw(st.integers(0, 3)))
    eos = frozenset(data.draw(st.sets(st.integers(0, 49), max_size=4)))
    room = step_limits.context - 1
    requests = [Request(i, tuple(ids[:room]), params, new, eos) for i, ids in enumerate(texts)]
    runner = FakeRunner(step_limits)
    expected = {r.index: _by_definition(r, step_limits.context, 50) for r in requests}
    assert _answers(runner, requests) == expected
    assert all(
        t <= step_limits.max_tokens and b <= step_limits.max_seqs for t, b, _ in runner.batches
    )


def test_sequences_that_do_not_fit_together_still_give_their_own_tokens():
    step_limits = limits(num_blocks=9, max_tokens=12)
    requests = [Request(i, tuple(range(i + 1, i + 9)), max_new_tokens=20) for i in range(4)]
    expected = {r.index: _by_definition(r, step_limits.context, 50) for r in requests}
    assert _answers(FakeRunner(step_limits), requests) == expected


def test_prompts_decode_together_in_uniform_batches():
    runner = FakeRunner(limits())
    requests = [Request(i, (i + 1, 2, 3), max_new_tokens=5) for i in range(4)]
    _answers(runner, requests)
    assert runner.batches == [(12, 4, False)] + [(4, 4, True)] * 4


def test_a_wrong_slot_is_noticed_by_the_fake():
    runner = FakeRunner(limits())
    request = Request(0, (1, 2, 3), max_new_tokens=6)
    expected = _answers(FakeRunner(limits()), [request])
    events = generate(runner, [request])
    next(events)
    runner.kv = np.roll(runner.kv, 1)
    tokens = [event.token for event in events]
    assert tokens != expected[0][0][1:]


def test_nothing_runs_when_one_prompt_is_refused():
    runner = FakeRunner(limits())
    with pytest.raises(UsageError):
        generate(runner, [Request(0, (1,)), Request(1, ())])
    assert runner.batches == []


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(1.0), SamplingParams(1.0, 5)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_token_of_logits_with_nan_says_so_and_the_others_of_the_batch_do_not(params):
    requests = [Request(i, ids, params, 3) for i, ids in enumerate([(1, 7, 2), (1, 2)])]
    events = list(generate(BrokenRunner(limits()), requests))
    told = {(one.request, one.finite) for one in events if one.step == 0}
    assert told == {(0, False), (1, True)}
    assert not any(one.finite for one in events if one.request == 0)
    assert all(one.finite for one in generate(FakeRunner(limits()), requests))


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([Request(0, (1,)), Request(0, (2,))], "two prompts are number 0"),
        ([(1, 2, 3)], "a prompt is no Request"),
    ],
)
def test_answers_that_could_not_be_told_apart_are_refused_before_any_step(requests, said):
    with pytest.raises(UsageError, match=said) as caught:
        generate(FakeRunner(limits()), requests)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index", "0"),
        ("token_ids", None),
        ("params", None),
        ("max_new_tokens", 1.5),
        ("max_new_tokens", True),
        ("lora", None),
    ],
)
def test_a_request_of_wrong_kinds_is_refused_when_it_is_made(field, value):
    with pytest.raises(UsageError, match=f"{field} is {value!r}"):
        Request(**{"index": 0, "token_ids": (1,), field: value})
