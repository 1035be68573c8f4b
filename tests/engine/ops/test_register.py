"""Loading the operators: once a process, and without a compiler on plain torch, with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from vcc.engine.ops.register import load_ops

PREAMBLE = """
import sys
import torch
from pathlib import Path
from vcc.engine import native
from vcc.engine.ops.register import load_ops
"""
CHECK = """
backend = load_ops()
print(backend.name, "|", backend.reason)
x = torch.randn(2, 8)
want = torch.nn.functional.rms_norm(x, (8,), torch.ones(8), 1e-6)
torch.testing.assert_close(torch.ops.vcc.rms_norm(x, torch.ones(8), 1e-6), want)
"""


def _run(code: str) -> str:
    command = [sys.executable, "-c", PREAMBLE + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loading_twice_gives_the_same_answer() -> None:
    assert load_ops() is load_ops()
    assert load_ops().name in ("cpu", "native")
    assert load_ops().reason


def test_without_the_library_plain_torch_answers_and_says_why() -> None:
    out = _run("native.library = lambda name: None" + CHECK)
    assert out.startswith("native | libvcc_ops.so was not built: no C++ compiler")


def test_a_library_that_does_not_load_is_a_reason_not_a_crash(tmp_path: Path) -> None:
    broken = tmp_path / "libvcc_ops.so"
    broken.write_bytes(b"\x7fELF but no more")
    out = _run(f"native.library = lambda name: Path({str(broken)!r})" + CHECK)
    assert out.startswith("native | libvcc_ops.so does not load here: ")


def test_loading_imports_none_of_the_build_side() -> None:
    heavy = ("torch._dynamo", "torch._inductor", "sympy", "triton", "transformers")
    out = _run(f"load_ops()\nprint([m for m in {heavy!r} if m in sys.modules])")
    assert out.strip() == "[]"


def test_the_operators_are_cheap_to_call(ops: Any) -> None:
    """A call costs a few microseconds, not the 20 that torch.library.custom_op takes."""
    timeit = pytest.importorskip("timeit")
    x, weight = torch.randn(1, 16), torch.ones(16)
    best = min(timeit.repeat(lambda: ops.rms_norm(x, weight, 1e-6), number=200, repeat=20)) / 200
    plain = min(timeit.repeat(lambda: x * weight, number=200, repeat=20)) / 200
    # The plain-torch back end is eight small operators, the compiled one less than five.
    assert best < (5 if load_ops().name == "cpu" else 40) * plain
