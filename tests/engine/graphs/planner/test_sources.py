"""Sources of kernels: what the CPU check rebuilds them from, as plain values."""

from __future__ import annotations

import pytest
import triton.language as tl

from vcc.cache.errors import CompileError
from vcc.engine.graphs.planner.sources import KernelSource, constant, decode, encode

SOURCE = KernelSource(
    "ab" * 32,
    "scale",
    "",
    "def scale(): ...",
    (("x", "*bf16"), ("n", "i32"), ("eps", "fp64"), ("out", "*bf16")),
    {"BLOCK": 128, "SCALE": 0.5, "BIAS": None, "TYPE": "dtype:bf16"},
)


def test_sources_travel_between_processes() -> None:
    assert decode(encode({SOURCE.cubin: SOURCE})) == {SOURCE.cubin: SOURCE}


def test_parameters_lie_at_their_natural_alignment() -> None:
    assert SOURCE.offsets() == {"x": 0, "n": 8, "eps": 16, "out": 24}


def test_a_parameter_that_no_table_binds_is_refused_by_name() -> None:
    odd = KernelSource("", "f", "", "", (("flag", "i1"),), {})
    with pytest.raises(CompileError, match="flag is i1"):
        odd.offsets()


def test_constants_are_plain() -> None:
    assert constant("TYPE", tl.bfloat16) == "dtype:bf16"
    assert constant("N", tl.constexpr(4)) == 4
    with pytest.raises(CompileError, match="constant FN"):
        constant("FN", len)
