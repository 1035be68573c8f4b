"""First come first served, inside the budgets, and out of blocks the youngest waits."""

from __future__ import annotations

import pytest
from support.fake_runner import limits

from vcc.cache.errors import UsageError
from vcc.engine.runtime.requests import Finish, Request
from vcc.engine.runtime.scheduler import Scheduler


def _request(index, length, new=4, **more):
    return Request(index, tuple(range(1, length + 1)), max_new_tokens=new, **more)


def _step(scheduler, token=9):
    """Run one step; rows of each sequence by request index."""
    step = scheduler.schedule()
    rows = {part.sequence.request.index: len(part.chunk.tokens) for part in step}
    for part in step:
        scheduler.commit(part, token if part.samples else None)
    return rows


def test_a_long_prompt_is_prefilled_in_chunks_beside_decode():
    scheduler = Scheduler(limits(max_tokens=8), [_request(0, 3), _request(1, 14)])
    assert _step(scheduler) == {0: 3, 1: 5}
    assert _step(scheduler) == {0: 1, 1: 7}
    assert _step(scheduler) == {0: 1, 1: 2}
    assert _step(scheduler) == {0: 1, 1: 1}


def test_no_more_sequences_than_allowed_and_in_order():
    scheduler = Scheduler(limits(max_seqs=2), [_request(i, 2, new=1) for i in range(5)])
    assert [sorted(_step(scheduler)) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    assert not scheduler.busy


def test_out_of_blocks_the_youngest_is_computed_again():
    # 6 blocks of 4: two sequences of 8 tokens hold 4, at token 9 and 13 they need 2 more each
    tight = limits(num_blocks=6, max_tokens=32)
    scheduler = Scheduler(tight, [_request(0, 8, new=12), _request(1, 8, new=12)])
    rows = []
    while scheduler.busy:
        rows.append(_step(scheduler))
    assert scheduler.preemptions == 1
    again = [step[1] for step in rows if 1 in step]
    assert max(again[1:]) > 8  # prompt and answer so far, in one go
    assert scheduler.free_blocks == 6


def test_a_lone_sequence_may_use_the_whole_cache():
    scheduler = Scheduler(limits(num_blocks=3), [_request(0, 5, new=99)])
    finishes = []
    while scheduler.busy:
        (part,) = scheduler.schedule()
        finishes.append(scheduler.commit(part, 9))
    assert finishes == [None] * 6 + [Finish.CONTEXT]


@pytest.mark.parametrize(
    ("token", "new", "finish"), [(7, 4, Finish.STOP), (9, 1, Finish.LENGTH), (9, 2, None)]
)
def test_finish_reasons(token, new, finish):
    scheduler = Scheduler(limits(), [_request(0, 3, new=new, eos=frozenset({7}))])
    (part,) = scheduler.schedule()
    assert scheduler.commit(part, token) is finish
    assert scheduler.busy is (finish is None)


@pytest.mark.parametrize(
    ("request_", "what", "why"),
    [
        (Request(0, ()), "prompt 0 is empty", "no token"),
        (_request(3, 64), "prompt 3 is too long", "64 tokens, the context holds 64"),
        (Request(0, (1, 50)), "token id 50", "ids 0 to 49"),
        (Request(0, (-1,)), "token id -1", "ids 0 to 49"),
        (Request(0, (1, 2.0)), "something else than token ids", "it holds 2.0"),
        (Request(0, (True,)), "something else than token ids", "it holds True"),
        (_request(0, 3, new=0), "asks for 0 new tokens", "at least one"),
    ],
)
def test_prompts_that_cannot_be_answered_are_refused(request_, what, why):
    with pytest.raises(UsageError) as error:
        Scheduler(limits(), [_request(9, 2), request_])
    assert what in error.value.what
    assert why in error.value.why


def test_requests_can_join_while_others_run():
    scheduler = Scheduler(limits(), [_request(0, 3)])
    _step(scheduler)
    scheduler.add(_request(1, 5))
    assert _step(scheduler) == {0: 1, 1: 5}


def decoding(scheduler: Scheduler) -> None:
    """Compute every prompt."""
    for part in scheduler.schedule():
        scheduler.commit(part, 1 if part.samples else None)


def test_a_run_of_decode_steps_needs_every_sequence_decoding() -> None:
    scheduler = Scheduler(limits(), [Request(0, (1, 2), max_new_tokens=9)])
    assert scheduler.decode_run(8) is None  # the prompt comes first
    decoding(scheduler)
    run = scheduler.decode_run(8)
    assert run is not None
    assert (run.steps, run.finish, len(run.sequences)) == (8, 1, 1)


def test_a_run_ends_where_the_first_answer_does() -> None:
    requests = [Request(i, (1, 2), max_new_tokens=4 + i) for i in range(2)]
    scheduler = Scheduler(limits(), requests)
    decoding(scheduler)
    run = scheduler.decode_run(64)
    assert run is not None
    assert run.steps == 3


def test_a_run_has_blocks_for_all_its_steps_or_fewer_steps() -> None:
    small = limits(num_blocks=2, block_size=4, max_blocks_per_seq=2)
    scheduler = Scheduler(small, [Request(0, (1, 2, 3), max_new_tokens=5)])
    decoding(scheduler)
    run = scheduler.decode_run(64)
    assert run is not None
    (sequence,) = run.sequences
    assert sequence.table.count * 4 >= sequence.length + run.steps - 1
    two = limits(num_blocks=2, block_size=4, max_blocks_per_seq=2, max_seqs=2)
    scheduler = Scheduler(two, [Request(i, (1, 2), max_new_tokens=6) for i in range(2)])
    decoding(scheduler)
    run = scheduler.decode_run(64)
    assert run is not None
    assert run.steps <= 2  # a block each holds 4 tokens


def test_there_is_no_run_while_a_waiting_request_could_begin() -> None:
    scheduler = Scheduler(limits(max_seqs=2), [Request(0, (1, 2), max_new_tokens=9)])
    decoding(scheduler)
    scheduler.add(Request(1, (3, 4), max_new_tokens=9))
    assert scheduler.decode_run(8) is None
    decoding(scheduler)
    scheduler.add(Request(2, (5, 6), max_new_tokens=9))
    run = scheduler.decode_run(8)  # the step is full
    assert run is not None
    assert run.finish == 1  # one that ends makes room


def test_tokens_of_a_run_are_committed_one_by_one() -> None:
    scheduler = Scheduler(limits(), [Request(0, (1, 2), max_new_tokens=3)])
    decoding(scheduler)
    run = scheduler.decode_run(8)
    assert run is not None
    (sequence,) = run.sequences
    finishes = [scheduler.commit_rows(sequence, 1, token) for token in (5, 6)]
    assert finishes == [None, Finish.LENGTH]
    assert not scheduler.busy


@pytest.mark.parametrize("number", [-1, 1 << 31])
def test_a_number_that_sampling_cannot_hold_is_refused(number):
    with pytest.raises(UsageError, match="number that sampling cannot hold"):
        Scheduler(limits(), [_request(number, 2)])
