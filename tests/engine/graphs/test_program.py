"""Step programs: canonical JSON there and back, and hostile bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from support.programs import chain, programs, value

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.dtypes import DTYPES, NAMES
from vcc.engine.graphs.program import Call, Program, encode
from vcc.engine.graphs.program_check import decode

PLAIN = chain([8, 4, 2])


@given(programs())
def test_there_and_back(drawn: tuple[Program, dict[str, int]]) -> None:
    program, _ = drawn
    data = encode(program)
    assert decode(data) == program
    assert encode(decode(data)) == data
    assert decode(memoryview(data)) == program
    assert b" " not in data


def test_literals_keep_their_types() -> None:
    literals: list[Any] = [[1], [True], [1.0], ["x"], [None], [-0.5]]
    call = Call("op", "toy::op", ["x", *literals], [])
    program = Program(1, [], [value("x", "input", [4])], [call], ["x"])
    found = decode(encode(program)).calls[0].args
    assert [type(a[0]) for a in found[1:]] == [int, bool, float, str, type(None), float]


def test_look_ups() -> None:
    assert list(PLAIN.by_name()) == ["x", "b0", "b1"]
    assert [v.name for v in PLAIN.of_role("buffer")] == ["b0", "b1"]
    assert PLAIN.of_role("weight") == ()


def test_every_element_type_has_a_dtype() -> None:
    assert len(DTYPES) == len(NAMES) == 12
    assert {NAMES[dtype] for dtype in DTYPES.values()} == set(DTYPES)


Change = Callable[[Any], object]

CHANGES: dict[str, Change] = {
    "other version": lambda p: p.update(version=2),
    "version as text": lambda p: p.update(version="1"),
    "version true": lambda p: p.update(version=True),
    "unknown field": lambda p: p.update(extra=1),
    "missing field": lambda p: p.pop("calls"),
    "unknown role": lambda p: p["values"][0].update(role="code"),
    "unknown dtype": lambda p: p["values"][0].update(dtype="object"),
    "dtype of torch": lambda p: p["values"][0].update(dtype="qint8"),
    "unknown kind": lambda p: p["calls"][0].update(kind="python"),
    "unknown argument": lambda p: p["calls"][0]["args"].append("nobody"),
    "argument two deep": lambda p: p["calls"][0]["args"].append([[1]]),
    "argument object": lambda p: p["calls"][0]["args"].append({"a": 1}),
    "unknown result": lambda p: p["calls"][0]["outs"].append("nobody"),
    "unknown output": lambda p: p["outputs"].append("nobody"),
    "output literal": lambda p: p["outputs"].append([1]),
    "two values of one name": lambda p: p["values"].append(p["values"][0]),
    "two sizes of one name": lambda p: p["symbols"].append(p["symbols"][0]),
    "empty range": lambda p: p["symbols"][0].update(low=65),
    "negative range": lambda p: p["symbols"][0].update(low=-1),
    "range beyond all": lambda p: p["symbols"][0].update(high=2**60),
    "unknown source": lambda p: p["symbols"][0].update(source="nobody"),
    "source that is a buffer": lambda p: p["symbols"][0].update(source="b0"),
    "dimension past the end": lambda p: p["symbols"][0].update(dim=2),
    "negative dimension": lambda p: p["symbols"][0].update(dim=-2),
    "dimension of another size": lambda p: p["symbols"][0].update(dim=1),
    "size of no symbol": lambda p: p["values"][1].update(shape=["S", 4]),
    "negative size": lambda p: p["values"][1].update(shape=[-1]),
    "size as float": lambda p: p["values"][1].update(shape=[1.0]),
    "division by zero": lambda p: p["values"][1].update(shape=[["//", "T", 0]]),
    "shape as number": lambda p: p["values"][1].update(shape=4),
    "literal of two": lambda p: p["calls"][0]["args"].append([1, 2]),
    "literal of none": lambda p: p["calls"][0]["args"].append([]),
    "read before written": lambda p: p["calls"].reverse(),
    "output never written": lambda p: p["calls"].pop(),
    "too many dimensions": lambda p: p["values"][1].update(shape=[1] * 17),
    "more elements than memory": lambda p: p["values"][1].update(shape=[2**26, 2**26]),
    "write to a weight": lambda p: p["values"][2].update(role="weight"),
    "name as number": lambda p: p["values"][1].update(name=4),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_program_that_is_not_of_the_grammar_is_refused(name: str) -> None:
    content = json.loads(encode(PLAIN))
    CHANGES[name](content)
    with pytest.raises(IntegrityError, match=r"step program refused|size expression refused"):
        decode(json.dumps(content).encode())


NOT_JSON = [
    *(b"", b"null", b"[]", b"{", b'"program"', b"\xff\xfe", b"{}x", b"NaN"),
    *(encode(PLAIN)[:-1], encode(PLAIN) + b"}", encode(PLAIN).replace(b'"x"', b'"\xff"')),
    *(b"[" * 200_000, b'{"version":' * 200_000, b"9" * 5000),
]


@pytest.mark.parametrize("data", NOT_JSON, ids=lambda data: repr(data[:16]))
def test_bytes_that_are_no_program_are_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        decode(data)
    assert len(str(caught.value)) < 400


def test_a_long_name_does_not_flood_the_message() -> None:
    content = json.loads(encode(PLAIN))
    content["outputs"] = ["n" * 100_000]
    with pytest.raises(IntegrityError) as caught:
        decode(json.dumps(content).encode())
    assert len(str(caught.value)) < 400


def test_a_program_with_one_place_changed_is_read_or_refused() -> None:
    """Any value anywhere in the text replaced by any other: never an error of another kind."""
    source = random.Random(0)
    values: list[Any] = [None, True, -1, 2**70, 1e400, "", "x", "T", [], {}, ["+", "T", 1], "b0"]
    for _ in range(3000):
        content = copy.deepcopy(json.loads(encode(PLAIN)))
        holder = content
        while True:
            key = source.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            inner = holder[key]
            if not isinstance(inner, (dict, list)) or not inner or source.random() < 0.3:
                break
            holder = inner
        holder[key] = source.choice(values)
        with suppress(IntegrityError):
            assert isinstance(decode(json.dumps(content).encode()), Program)
