"""Request: one prompt and how to answer it, and which prompts cannot be answered."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from enum import Enum
from numbers import Integral

import numpy as np

from vcc.cache.errors import UsageError
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.kinds import Kinds, check_kinds
from vcc.engine.runtime.no_adapters import no_adapters
from vcc.engine.runtime.sample import GREEDY, SamplingParams


class Finish(str, Enum):
    """Why a sequence ended."""

    STOP = "stop"  # an end-of-sequence token
    LENGTH = "length"  # max_new_tokens
    CONTEXT = "context"  # the context is full


MOST_REQUESTS = 1 << 31
"""Request numbers are 32-bit words of the sampling counter, on the device too."""

WHOLE = (int, np.integer)
"""What a token id is; True and False, which are ints too, are none."""

_KINDS: Kinds = {
    "index": (Integral, "a whole number"),
    "token_ids": (Sized, "token ids such as (5, 6, 7)"),
    "params": (SamplingParams, "of SamplingParams"),
    "max_new_tokens": (Integral, "a whole number"),
    "lora": (str, "the name of an adapter, or empty"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how to answer it.

    Attributes:
        index: number of the request in its run, from 0; part of the sampling counter.
        token_ids: the prompt.
        params: sampling.
        max_new_tokens: most tokens of the answer.
        eos: token ids that end the answer; empty to never stop on one.
        lora: name of the adapter; empty without one.
        encoded: whether a tokenizer made the ids of a text.

    Raises:
        UsageError: a value is of another kind.
    """

    index: int
    token_ids: tuple[int, ...]
    params: SamplingParams = GREEDY
    max_new_tokens: int = 16
    eos: frozenset[int] = frozenset()
    lora: str = ""
    encoded: bool = False

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS)


def check_request(request: Request, limits: StepLimits) -> None:
    """Raise UsageError for a prompt that cannot be answered."""
    name, count = f"prompt {request.index}", len(request.token_ids)
    if not 0 <= request.index < MOST_REQUESTS:
        raise UsageError(
            f"{name} has a number that sampling cannot hold",
            f"numbers of a run's requests are 0 to {MOST_REQUESTS - 1}",
            "number requests from 0, or leave the number out",
        )
    if not count:
        raise UsageError(f"{name} is empty", "there is no token to start from", "give it some text")
    if count >= limits.context:
        raise UsageError(
            f"{name} is too long",
            f"it has {count} tokens, the context holds {limits.context}, the answer included",
            "shorten the prompt, or compile with a larger --max-model-len",
        )
    if request.lora and not limits.max_loras:
        raise no_adapters()
    strange = [one for one in request.token_ids if type(one) is bool or not isinstance(one, WHOLE)]
    if strange:
        raise UsageError(
            f"{name} is a list of something else than token ids",
            f"it holds {strange[0]!r:.60}, and ids are whole numbers",
            "give ids such as [1, 2, 3], or a text",
        )
    wrong = next((t for t in request.token_ids if not 0 <= t < limits.vocab), None)
    if wrong is not None:
        raise UsageError(
            f"{name} holds token id {wrong}",
            f"the model's vocabulary has ids 0 to {limits.vocab - 1}",
            "use the tokenizer that belongs to the model"
            if request.encoded
            else "give ids that the model's vocabulary has",
        )
    if request.max_new_tokens < 1:
        raise UsageError(
            f"{name} asks for {request.max_new_tokens} new tokens",
            "at least one is generated",
            "give --max-new-tokens 1 or more",
        )
