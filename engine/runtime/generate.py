"""generate: the loop from requests over a step runner to tokens, as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vcc.cache.errors import UsageError
from vcc.engine.runtime.batch import BatchBuilder, StepRunner, as_float32
from vcc.engine.runtime.device_steps import DeviceSampler, TokenEvent, device_steps
from vcc.engine.runtime.placed import chunks_of, scheduler_of
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.sample import Float32Array, has_highest, sample
from vcc.engine.runtime.scheduler import Scheduled, Scheduler

__all__ = ["TokenEvent", "generate"]


def generate(runner: StepRunner, requests: Sequence[Request]) -> Iterator[TokenEvent]:
    """Answer all requests with continuous batching.

    Args:
        runner: what computes a step.
        requests: prompts; indices must differ.

    Yields:
        One event a token, in the order they are computed.

    Raises:
        UsageError: a prompt is empty, too long, not of the vocabulary, or for an adapter that is
            not loaded, or two have one index; nothing has run then.
    """
    _check_numbers(requests)
    scheduler = scheduler_of(runner, requests)
    if isinstance(runner, DeviceSampler) and runner.samples:
        return device_steps(runner, scheduler)
    return _steps(runner, scheduler)


def _check_numbers(requests: Sequence[Request]) -> None:
    if strange := [type(one).__name__ for one in requests if not isinstance(one, Request)]:
        raise UsageError(
            "a prompt is no Request",
            f"it is a {strange[0]}",
            "give a list of Request",
        )
    twice = [index for index, many in Counter(one.index for one in requests).items() if many > 1]
    if twice:
        raise UsageError(
            f"two prompts are number {twice[0]}",
            "the tokens of their answers could not be told apart",
            "number requests from 0, each by its own index",
        )


def _steps(runner: StepRunner, scheduler: Scheduler) -> Iterator[TokenEvent]:
    builder = BatchBuilder(runner.limits)
    while scheduler.busy:
        step = scheduler.schedule()
        logits = as_float32(runner.step(builder.build(chunks_of(runner, step))))
        for part, row in zip(step, logits, strict=False):
            event = advance(scheduler, part, row)
            if event is not None:
                yield event


def advance(scheduler: Scheduler, part: Scheduled, row: Float32Array) -> TokenEvent | None:
    """Choose a sequence's next token, if this step gives it, and record that the step ran.

    Args:
        scheduler: of the sequence.
        part: what the step computed of it.
        row: its logits, float32 [V].
    """
    if not part.samples:
        scheduler.commit(part, None)
        return None
    request, number = part.sequence.request, part.sequence.generated
    token = sample(row, request.params, request.index, number)
    finite = has_highest(row, token if request.params.greedy else None)
    return TokenEvent(request.index, token, number, scheduler.commit(part, token), finite)
