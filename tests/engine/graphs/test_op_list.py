"""Operator lists from disk are refused unless they are exactly what a build writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.op_list import OpCall, OpList, decode, encode, may_call

GOOD: dict[str, Any] = {
    "version": 1,
    "arguments": 2,
    "calls": [
        {"op": "aten::mul.Tensor", "args": [{"v": 0}, 2.5], "kwargs": {}},
        {"op": "aten::cat.default", "args": [[{"v": 2}, {"v": 1}], 0], "kwargs": {}},
    ],
}


def altered(**call: Any) -> bytes:
    return json.dumps({**GOOD, "calls": [{**GOOD["calls"][0], **call}]}).encode()


def test_what_is_written_is_read() -> None:
    found = decode(json.dumps(GOOD).encode())
    assert decode(encode(found)) == found
    assert found.calls[1] == OpCall("aten::cat.default", [[{"v": 2}, {"v": 1}], 0])


BAD = {
    "no JSON": b"{",
    "another version": json.dumps({**GOOD, "version": 2}).encode(),
    "an unknown field": json.dumps({**GOOD, "code": "x"}).encode(),
    "a negative count": json.dumps({**GOOD, "arguments": -1}).encode(),
    "a file": altered(op="aten::from_file"),
    "memory of another tensor": altered(op="aten::set_.source_Tensor"),
    "another namespace": altered(op="profiler::_record_function_enter_new"),
    "no operator": altered(op="aten::"),
    "Python": altered(op="py::exec"),
    "a value to come": altered(args=[{"v": 2}]),
    "a negative value": altered(args=[{"v": -1}]),
    "a bool as value": altered(args=[{"v": True}]),
    "two keys": altered(args=[{"v": 0, "dtype": "float32"}]),
    "no key": altered(args=[{}]),
    "an unknown key": altered(kwargs={"x": {"module": "os"}}),
    "no text": altered(args=[{"dtype": 3}]),
    "deep lists": altered(args=[json.loads("[" * 12 + "]" * 12)]),
}


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_refused(case: str) -> None:
    with pytest.raises(IntegrityError, match="operator list refused"):
        decode(BAD[case])


def test_which_operators_a_list_may_call() -> None:
    assert all(map(may_call, ("aten::add.Tensor", "vcc::rms_norm.default", "py::mul", "prims::x")))
    assert not any(map(may_call, ("toy::mix.default", "aten::from_file", "py::eval", "add", "")))


def test_a_list_without_calls_is_one() -> None:
    assert decode(encode(OpList(1, 0, []))).calls == []
