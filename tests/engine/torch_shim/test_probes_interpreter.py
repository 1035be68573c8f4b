"""Probes of what the CPU check needs of Triton's interpreter and of Inductor's kernel sources."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter as tritons

from vcc.cache.errors import CompileError, UsageError
from vcc.engine.torch_shim import interpreted_math, interpreter

TEXT = """
import triton
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton_heuristics.pointwise(size_hints=[4])
@triton.jit
def kernel(x, n):
    tl.device_assert(n > 0, "n")
    return libdevice.tanh(x) + tl_math.exp(x) + tl.load(x)

async_compile = 1
"""


def test_interpreter_interpreting() -> None:
    assert not interpreter.interpreting()


def test_interpreter_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter reaches memory by four functions of one module, looked up at each call."""
    seen = []
    before = tritons._interpreter
    value = np.array([1.5], np.float32)
    at, mask = np.array([value.ctypes.data], np.uint64), np.array([True])
    with interpreter.watched(lambda a, m, item, write: seen.append((int(a[0]), item, write))):
        inner = tritons._interpreter
        assert inner.load(at, mask, value, np.dtype(np.float32)) == 1.5
        inner.store(at, np.array([2.5], np.float32), mask)
    assert tritons._interpreter is before
    assert value[0] == 2.5
    assert seen == [(value.ctypes.data, 4, False), (value.ctypes.data, 4, True)]
    source = inspect.getsource(tritons.InterpreterBuilder)
    calls = {"load(ptrs.data, mask.data, other.data", "store(ptrs.data, value.data, mask.data)"}
    calls |= {"atomic_cas(ptr.data, cmp.data, val.data, sem)"}
    calls |= {"atomic_rmw(rmwOp, ptr.data, val.data, mask.data, sem)"}
    assert [call for call in calls if f"_interpreter.{call}" not in source] == []


def test_interpreter_launch() -> None:
    class Kernel:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __getitem__(self, grid: object):
            def run(**words: object) -> None:
                try:
                    raise self.error
                except Exception as error:
                    raise tritons.InterpreterError(repr(error)) from error

            return run

    with pytest.raises(UsageError, match="ours"):
        interpreter.launch(Kernel(UsageError("ours")), (1, 1, 1), {})
    with pytest.raises(CompileError, match="cannot run") as caught:
        interpreter.launch(Kernel(ValueError("theirs")), (1, 1, 1), {})
    assert caught.value.why == "ValueError: theirs"


def test_interpreter_element_type() -> None:
    assert interpreter.element_type("bf16") == tl.bfloat16


def test_interpreter_portable() -> None:
    text = interpreter.portable(TEXT)
    assert "heuristics" not in text
    assert "device_assert" not in text
    assert "async_compile" not in text
    assert "interpreted_math.tanh(x) + interpreted_math.exp(x) + tl.load(x)" in text
    assert "@triton.jit" in text


def test_interpreter_generated_kernel(tmp_path) -> None:
    found = interpreter.generated_kernel(TEXT, "kernel", tmp_path, "k")
    assert found.fn.__name__ == "kernel"


def test_interpreter_own_kernel() -> None:
    found = interpreter.own_kernel("vcc.engine.ops.triton.linear", "linear")
    assert found.fn.__name__ == "linear"


def test_interpreted_math_tanh() -> None:
    """Values are compared in tests/engine/graphs/test_interpret.py: the interpreter must be on."""
    assert "interpreted_math.tanh" in interpreter.portable(TEXT)
    assert interpreted_math.rsqrt is tl.rsqrt
    with pytest.raises(AttributeError):
        getattr(interpreted_math, "nothing_of_this_name")  # noqa: B009


def test_interpreted_math_pow() -> None:
    """As above; it is made of these."""
    assert callable(tl.exp2)
    assert callable(tl.log2)
