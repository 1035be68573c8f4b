"""Goldens: the blob there and back, hostile blobs, drawn values, and when a result exceeds one."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.drawn import draw_arguments, poison
from vcc.engine.graphs.golden import (
    BLOCK,
    Argument,
    Bound,
    Golden,
    draw,
    draw_integers,
    exceeds,
)

ARGUMENTS = (
    *(Argument("bfloat16", (5, 8), True), Argument("int32", (5,), True)),
    *(Argument("float32", (2, 3), True), Argument("float32", (4,), False)),
)
REFERENCES = (np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, dtype=np.float32))
GOLDEN = Golden(ARGUMENTS, 3, REFERENCES, (Bound(0.5, 0.25), Bound(1e-4, 1e-5)))


def same(one: Golden, other: Golden) -> bool:
    equal = all(map(np.array_equal, one.references, other.references))
    plain = (one.arguments, one.below, one.bounds) == (other.arguments, other.below, other.bounds)
    return plain and equal and len(one.references) == len(other.references)


def test_there_and_back() -> None:
    assert same(Golden.decode(GOLDEN.encode()), GOLDEN)
    assert GOLDEN.encode() == GOLDEN.encode()
    many = Golden(ARGUMENTS[2:] * 6, 2, REFERENCES * 6, (Bound(1.0, 1.0),) * 12)
    assert same(Golden.decode(many.encode()), many)


def test_argument_bytes_count_four_for_an_element() -> None:
    assert GOLDEN.argument_bytes == (5 * 8 + 5 + 6 + 4) * 4


def blob(golden: Any, tensors: dict[str, Any] | None = None) -> bytes:
    text = golden if isinstance(golden, str) else json.dumps(golden)
    content = {"__metadata__": {"golden": text}, **(tensors or {})}
    header = json.dumps(content).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64 if tensors else 0)


GOOD: dict[str, Any] = {"arguments": [], "below": 2, "bounds": []}
ZERO = {"0": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}

NUMBER = [["float32", [16], True]]

HOSTILE = {
    "nothing": b"",
    "short": b"\x01",
    "long header": struct.pack("<Q", 1 << 62) + b"{}",
    "no metadata": struct.pack("<Q", 2) + b"{}" + bytes(64),
    "not json": struct.pack("<Q", 4) + b"abcd",
    "cut": GOLDEN.encode()[:-1],
    "cut in the header": GOLDEN.encode()[:40],
    "not an object": blob(7),
    "deep": blob("[" * 100_000),
    "no bounds": blob({k: v for k, v in GOOD.items() if k != "bounds"}),
    "bounds without references": blob(GOOD | {"bounds": [[1.0, 1.0]], "arguments": NUMBER}),
    "bound of three": blob(GOOD | {"bounds": [[1.0, 1.0, 1.0]], "arguments": NUMBER}, ZERO),
    "bound as text": blob(GOOD | {"bounds": [["a", 1.0]], "arguments": NUMBER}, ZERO),
    "bound negative": blob(GOOD | {"bounds": [[-1.0, 1.0]], "arguments": NUMBER}, ZERO),
    "bound not a number": blob(GOOD | {"bounds": [[float("nan"), 1.0]], "arguments": NUMBER}, ZERO),
    "bound infinite": blob(GOOD | {"bounds": [[1.0, float("inf")]], "arguments": NUMBER}, ZERO),
    "bounds as number": blob(GOOD | {"bounds": 7}),
    "below as text": blob(GOOD | {"below": "2"}),
    "below zero": blob(GOOD | {"below": 0}),
    "below true": blob(GOOD | {"below": True}),
    "arguments as number": blob(GOOD | {"arguments": 3}),
    "argument of two": blob(GOOD | {"arguments": [["float32", [2]]]}),
    "argument of no dtype": blob(GOOD | {"arguments": [["object", [2], True]]}),
    "argument dtype as list": blob(GOOD | {"arguments": [[["float32"], [2], True]]}),
    "negative size": blob(GOOD | {"arguments": [["float32", [-2], True]]}),
    "size as text": blob(GOOD | {"arguments": [["float32", ["2"], True]]}),
    "huge": blob(GOOD | {"arguments": [["float32", [4194305, 4194305, 211106198978564], True]]}),
    "references without arguments": blob(GOOD | {"bounds": [[1.0, 1.0]]}, ZERO),
    "reference of another shape": blob(
        GOOD | {"bounds": [[1.0, 1.0]], "arguments": [["float32", [15], True]]}, ZERO
    ),
    "reference of another dtype": blob(
        GOOD | {"bounds": [[1.0, 1.0]], "arguments": NUMBER},
        {"0": ZERO["0"] | {"dtype": "I32"}},
    ),
}


def test_the_hostile_blobs_are_near_misses() -> None:
    """The same blob without its fault is read, so each case is refused for what it says."""
    assert Golden.decode(blob(GOOD)).references == ()
    found = Golden.decode(blob(GOOD | {"bounds": [[1.0, 1.0]], "arguments": NUMBER}, ZERO))
    assert found.references[0].shape == (16,)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_blob_that_is_no_golden_is_refused(name: str) -> None:
    with pytest.raises(IntegrityError, match="golden refused"):
        Golden.decode(HOSTILE[name])


def test_every_cut_of_a_golden_is_refused() -> None:
    data = GOLDEN.encode()
    for end in range(0, len(data), 7):
        with pytest.raises(IntegrityError):
            Golden.decode(data[:end])


SHAPES = ((3,), (2, 5), (70000,), (), (300, 300))


def test_drawn_values_never_change() -> None:
    """A stored golden holds references for these values: a new digest breaks every artifact."""
    floats = [Argument("float32", shape, i % 2 == 0) for i, shape in enumerate(SHAPES)]
    integers = [Argument("int64", shape, True) for shape in SHAPES]
    drawn = draw_arguments("piece", [*floats, *integers], 5)
    found = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in drawn)).hexdigest()
    assert found == "a3fe5596fb50423dfc62060b771684c76b3a9598fbe6fe8ee449f64449ef1ec4"


def test_values_differ_by_name_and_index() -> None:
    one = Argument("float32", (9,), True)
    assert np.array_equal(draw("a", 0, one), draw("a", 0, one))
    values = [draw(name, index, one).tobytes() for name in "ab" for index in (0, 1)]
    assert len(set(values)) == 4


def test_activations_matrices_and_vectors_have_their_scale() -> None:
    activation = draw("a", 0, Argument("float32", (64, 64), True))
    matrix = draw("a", 1, Argument("float32", (64, 64), False))
    vector = draw("a", 2, Argument("float32", (4096,), False))
    assert abs(float(activation.std()) - 1) < 0.05
    assert abs(float(matrix.std()) * 8 - 1) < 0.05
    assert abs(float(vector.mean()) - 1) < 0.02
    assert 0.69 < float(vector.min()) < float(vector.max()) < 1.31


def test_a_large_argument_repeats_values_but_no_rows() -> None:
    large = Argument("float32", (BLOCK + 10, 1), True)
    rows = Argument("bfloat16", (256, 1024), False)
    first, second = draw_arguments("a", [large, rows], 2)
    assert torch.equal(first[:10], first[BLOCK:])
    assert len({row.view(torch.int16).numpy().tobytes() for row in second}) == 256


@given(st.integers(1, 100), st.integers(0, 300))
def test_integers_stay_below(below: int, count: int) -> None:
    values = draw_integers("a", 0, Argument("int32", (count,), True), below)
    assert values.dtype == np.int64
    assert ((values >= 0) & (values < below)).all()


def test_arguments_have_their_dtype_and_shape() -> None:
    drawn = draw_arguments("piece", ARGUMENTS, 3)
    assert [(t.dtype, tuple(t.shape)) for t in drawn] == [
        (torch.bfloat16, (5, 8)),
        (torch.int32, (5,)),
        (torch.float32, (2, 3)),
        (torch.float32, (4,)),
    ]
    assert int(drawn[1].max()) < 3
    again = draw_arguments("piece", ARGUMENTS, 3)
    assert all(torch.equal(a, b) for a, b in zip(drawn, again, strict=True))


def test_poison_is_what_no_result_may_keep() -> None:
    buffers = [torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.int)]
    poison(buffers)
    assert buffers[0].isnan().all()
    assert buffers[1].isnan().all()
    assert not buffers[2].any()


REFERENCE = np.linspace(-1, 1, 100, dtype=np.float32)


@pytest.mark.parametrize(
    ("got", "why"),
    [
        (REFERENCE, None),
        (REFERENCE + np.float32(0.009), None),
        (REFERENCE + np.float32(0.02), "error 0.02"),
        (np.where(np.arange(100) == 7, REFERENCE + 0.09, REFERENCE), None),
        (np.where(np.arange(100) == 7, REFERENCE + 0.11, REFERENCE), "is above 0.1"),
        (np.where(np.arange(100) == 7, np.nan, REFERENCE), "not finite"),
        (np.where(np.arange(100) == 7, np.inf, REFERENCE), "not finite"),
    ],
)
def test_a_result_exceeds_by_its_worst_element_by_the_mean_or_by_not_being_finite(
    got: Any, why: str | None
) -> None:
    found = exceeds(got, REFERENCE, Bound(0.1, 0.01))
    assert found is None if why is None else why in (found or "")


def test_a_result_of_another_shape_or_of_nothing() -> None:
    assert "shape" in (exceeds(REFERENCE[:50], REFERENCE, Bound(0.1, 0.01)) or "")
    empty = np.empty((0, 4), dtype=np.float32)
    assert exceeds(empty, empty, Bound(0.0, 0.0)) is None


def test_where_the_reference_is_not_finite_the_result_must_be_the_same() -> None:
    """A logarithm or a division of drawn values is no reason to call the code wrong."""
    reference = np.array([1, np.nan, np.inf, -np.inf, 2], dtype=np.float32)
    bound = Bound(0.1, 0.1)
    assert exceeds(reference.copy(), reference, bound) is None
    for index, other in ((1, 3.0), (2, 1.0), (3, np.inf), (0, np.nan), (4, 2.5)):
        wrong = reference.copy()
        wrong[index] = other
        assert exceeds(wrong, reference, bound), index
