"""Sampling: logits of one sequence to its next token, the same token in any batch.

Randomness is a function, not a state: Philox4x32-10 (Salmon et al., "Parallel random numbers:
as easy as 1, 2, 3", 2011) of (seed, request, step). A kernel can compute the same numbers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import UsageError
from vcc.engine.runtime.kinds import Kinds, check_kinds

Float32Array = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
KINDS: Kinds = {
    "temperature": (Real, "a number"),
    "top_k": (Integral, "a whole number"),
    "top_p": (Real, "a number"),
    "seed": (Integral, "a whole number"),
}
_HOTTEST = sys.float_info.max  # whole numbers have no largest


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen.

    Attributes:
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the fewest most likely tokens whose probabilities reach p; 1 keeps all.
        seed: 64-bit seed.

    Raises:
        UsageError: a value is of another kind, or out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_kinds(self, KINDS)
        for name, holds, wanted in (
            ("temperature", 0.0 <= self.temperature <= _HOTTEST, "0 (greedy) or more"),
            ("top-k", self.top_k >= 0, "0 (all tokens) or more"),
            ("top-p", 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            ("seed", 0 <= self.seed < 1 << 64, "between 0 and 2^64 - 1"),
        ):
            if not holds:
                value = getattr(self, name.replace("-", "_"))
                raise UsageError(f"{name} {value!s:.80} is out of range", f"it must be {wanted}")

    @property
    def greedy(self) -> bool:
        """The most likely token is taken, the lowest id on a tie."""
        return self.temperature == 0.0 or self.top_k == 1


GREEDY = SamplingParams()


def philox(key: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Four random 32-bit words of a 64-bit key and a 128-bit counter (Philox4x32-10)."""
    c0, c1, c2, c3 = (word & _MASK for word in counter)
    k0, k1 = key & _MASK, key >> 32 & _MASK
    for _ in range(_ROUNDS):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ k0, b & _MASK, a >> 32 ^ c3 ^ k1, a & _MASK
        k0, k1 = k0 + _WEYL[0] & _MASK, k1 + _WEYL[1] & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, request: int, step: int) -> float:
    """A number in (0, 1) that belongs to this seed, request and step."""
    return (philox(seed, (step, request, 0, 0))[0] + 0.5) / 4294967296.0


def sample(logits: Float32Array, params: SamplingParams, request: int, step: int) -> int:
    """Choose the next token of one sequence.

    Args:
        logits: float32 [V].
        params: how to choose.
        request: number of the request in its run.
        step: number of the token in its answer, from 0.

    Returns:
        A token id. Logits whose largest is NaN or infinite have no probabilities (`has_highest`):
        with top-k it is then the largest, else the last token, or the first when top-p cuts.
    """
    if params.greedy or (0 < params.top_k < len(logits) and not has_highest(logits)):
        return int(np.argmax(logits))
    tokens = _top_k(logits, params.top_k)
    probabilities = _softmax(logits if tokens is None else logits[tokens], params.temperature)
    if params.top_p < 1.0:
        tokens, probabilities = _top_p(tokens, probabilities, params.top_p)
    cumulative = np.cumsum(probabilities)
    point = uniform(params.seed, request, step) * cumulative[-1]
    index = min(int(np.searchsorted(cumulative, point, side="right")), len(cumulative) - 1)
    return index if tokens is None else int(tokens[index])


def has_highest(logits: Float32Array, token: int | None = None) -> bool:
    """Whether the largest of these logits is a number: none is NaN or +infinity, nor all -infinity.

    Args:
        logits: float32 [V].
        token: the id of the largest, where it is known; nothing else is read then.
    """
    return bool(np.isfinite(logits.max() if token is None else logits[token]))


def _top_k(logits: Float32Array, k: int) -> Int64Array | None:
    """The k most likely tokens, most likely first, lower ids first on ties; None means all."""
    if k == 0 or k >= len(logits):
        return None
    least = np.partition(logits, len(logits) - k)[len(logits) - k]
    candidates = np.flatnonzero(logits >= least)
    order = np.argsort(-logits[candidates], kind="stable")[:k]
    kept: Int64Array = candidates[order]
    return kept


def _softmax(logits: Float32Array, temperature: float) -> npt.NDArray[np.float64]:
    scaled = logits.astype(np.float64)
    # The maximum goes first, so that a tiny temperature overflows to -infinity at most.
    with np.errstate(over="ignore"):
        scaled = np.exp((scaled - scaled.max()) / float(temperature))
    probabilities: npt.NDArray[np.float64] = scaled / scaled.sum()
    return probabilities


def _top_p(
    tokens: Int64Array | None, probabilities: npt.NDArray[np.float64], p: float
) -> tuple[Int64Array, npt.NDArray[np.float64]]:
    order = np.argsort(-probabilities, kind="stable")
    cumulative = np.cumsum(probabilities[order])
    kept = order[: int(np.searchsorted(cumulative, p, side="left")) + 1]
    return (kept if tokens is None else tokens[kept]), probabilities[kept]
