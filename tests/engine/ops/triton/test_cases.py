"""The kernels' test bodies where there is no device: by Triton's interpreter, and on the CPU's own.

bf16 is left to the device: the interpreter's products of it are wrong.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.interpreted import run_interpreted
from support.kernel_cases import CASES, CPU_CASES, Backend

from vcc.engine.ops.register import load_ops

INTERPRETED = (
    (("attention",), "float32"),
    (("linear", "norms", "silu", "rotary", "kv_write", "advance"), "float32"),
    (("sample",), "float32"),
    (("linear", "norms", "silu", "rotary", "kv_write"), "float16"),
)


@pytest.mark.parametrize(("names", "dtype"), INTERPRETED, ids=str)
def test_kernels_by_the_interpreter(names: tuple[str, ...], dtype: str) -> None:
    run_interpreted("kernel_cases", *names, "--dtype", dtype)


@pytest.mark.parametrize("name", CPU_CASES)
def test_the_same_bodies_on_the_cpu(name: str) -> None:
    load_ops()
    print("torch seed", torch.seed())
    ops: Any = torch.ops.vcc
    CASES[name](Backend(ops, torch.float32, small=True))
