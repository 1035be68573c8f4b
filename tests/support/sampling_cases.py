"""Sampling by a kernel against engine/runtime/sample.py, row by row."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from vcc.engine.runtime import sample as reference
from vcc.engine.runtime.device_steps import told

Shape = tuple[int, int]


def sampling(backend: Any) -> None:
    """Random rows of every rule, ties, masked and broken logits; vocabularies around the tiles."""
    shapes = ((1, 4), (700, 12), (5000, 4)) if backend.small else SHAPES
    for shape in backend.share((*shapes, None)):
        if shape is None:
            _broken(backend)
            continue
        rows, vocab = shape[1], shape[0]
        for change in CHANGES:
            logits = change(torch.randn(rows, vocab)).to(backend.dtype)
            _compare(backend, logits, _rules(rows, vocab))


SHAPES = ((1, 16), (1000, 256), (32000, 128), (128256, 64), (262144, 4))
CHANGES = (
    lambda x: 3 * x,
    lambda x: 0.2 * x,
    lambda x: x.round(),
    lambda x: torch.where(x > 0.5, 2 * x, -torch.inf).index_fill(1, torch.tensor([0]), 1.0),
)
"""Peaked, flat (the short list overflows), full of ties, mostly masked."""


def _rules(rows: int, vocab: int) -> dict[str, Tensor]:
    random = np.random.default_rng(torch.initial_seed() % 2**32)
    return {
        "temperature": torch.tensor(random.choice([0, 1, 0.6, 2, 1e-3, 20], rows)).float(),
        "top_p": torch.tensor(random.choice([1, 0.9, 0.5, 0.05, 0.999, 0.9999999], rows)).float(),
        "top_k": torch.tensor(random.choice([0, 1, 2, 5, 50, vocab, vocab + 3], rows)).int(),
        "seed": torch.tensor(random.integers(-(2**63), 2**63 - 1, rows)),
        "request": torch.tensor(random.integers(0, 2**31 - 1, rows)).int(),
        "step": torch.tensor(random.integers(0, 5000, rows)).int(),
    }


def _compare(backend: Any, logits: Tensor, rules: dict[str, Tensor]) -> None:
    tensors = {name: value.to(backend.device) for name, value in rules.items()}
    got = backend.ops.sample({**tensors, "logits": logits.to(backend.device)}).tolist()
    odd = 0
    for row, (token, finite) in enumerate(map(told, got)):
        numbers = {name: value[row].item() for name, value in rules.items()}
        wide = logits[row].float().numpy()
        if finite != reference.has_highest(wide):
            raise AssertionError(f"row {row}: told as finite: {finite}; {numbers}")
        if token != _reference(wide, numbers):
            odd += 1
            if token not in _nearby(wide, numbers):
                raise AssertionError(
                    f"row {row}: {token}, not {_reference(wide, numbers)}: {numbers}"
                )
    if odd > 1 + len(got) // 50:
        raise AssertionError(f"{odd} of {len(got)} rows were decided by rounding")


def _reference(
    logits: np.ndarray, numbers: dict[str, Any], p: float = 1.0, point: float = 1.0
) -> int:
    """sample.py's token; `p` and `point` scale top-p and the random number."""
    top_p = numbers["top_p"] if numbers["top_p"] == 1 else min(1.0, numbers["top_p"] * p)
    params = reference.SamplingParams(
        numbers["temperature"], numbers["top_k"], top_p, numbers["seed"] % 2**64
    )
    uniform = reference.uniform
    with mock.patch.object(reference, "uniform", lambda *given: uniform(*given) * point):
        return reference.sample(logits, params, numbers["request"], numbers["step"])


def _nearby(logits: np.ndarray, numbers: dict[str, Any]) -> set[int]:
    """The tokens that a rounding error of the probabilities' sums may lead to."""
    shifts = (1 - 4e-6, 1.0, 1 + 4e-6)
    return {_reference(logits, numbers, p, point) for p in shifts for point in shifts}


BROKEN_VOCAB = 1500
"""Two chunks of a row, the second not full."""

BROKEN: tuple[tuple[tuple[int, float], ...], ...] = (
    *(((at, torch.nan),) for at in (0, 1, 700, 1023, 1024, 1300, 1499)),
    ((3, torch.nan), (9, torch.nan)),
    ((1400, torch.nan), (20, torch.inf)),
    ((1100, torch.inf),),
    ((5, torch.inf), (7, torch.inf), (1499, -torch.inf)),
    tuple((at, -torch.inf) for at in range(BROKEN_VOCAB)),
    (*((at, -torch.inf) for at in range(BROKEN_VOCAB - 1)), (1499, torch.nan)),
    tuple((at, torch.nan) for at in range(BROKEN_VOCAB)),
    tuple((at, torch.inf) for at in range(BROKEN_VOCAB)),
    tuple((at, -torch.inf) for at in range(0, BROKEN_VOCAB, 2)),  # has a largest one
    tuple((at, -torch.inf) for at in range(1024)),  # as this
)
"""Changes of each row: place and value."""

BROKEN_RULES = (
    *((0.0, 1.0, 0), (0.0, 0.5, 7), (1.0, 1.0, 0), (1.0, 0.5, 0)),
    *((1.0, 1.0, 1), (1.0, 1.0, 7), (1.0, 0.5, 7), (1.0, 0.5, BROKEN_VOCAB)),
)
"""Temperature, top-p and top-k."""


def _broken(backend: Any) -> None:
    """NaN and infinite logits by every rule: as sample.py, which has no probabilities then."""
    rows = torch.randn(len(BROKEN), BROKEN_VOCAB)
    for row, changes in zip(rows, BROKEN, strict=True):
        for at, value in changes:
            row[at] = value
    for heat, p, k in BROKEN_RULES:
        rules = _rules(*rows.shape) | {
            "temperature": torch.full((len(rows),), heat),
            "top_p": torch.full((len(rows),), p),
            "top_k": torch.full((len(rows),), k, dtype=torch.int32),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _compare(backend, rows.to(backend.dtype), rules)
