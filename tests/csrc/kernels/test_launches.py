"""`torch.ops.vcc` under the key of CUDA: the planner's launches, by the double of the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support.sources import ROOT

from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.register import load_ops


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What support.cuda_launches says, in a process of its own."""
    if load_ops().name != "cpu":
        pytest.skip(load_ops().reason)
    if cubins.missing():
        pytest.skip(cubins.missing())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.cuda_launches"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_library_launches_what_the_table_says(found: dict[str, Any]) -> None:
    assert found["why"] == ""
    assert found["differences"] == []
    assert found["calls"] > 1000


def test_no_rows_are_no_launch(found: dict[str, Any]) -> None:
    assert found["empty"] == [[0, 4], 0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("wide", "vcc::rms_norm: rows have 32768 values; kernels take 16384 at most"),
        ("odd", "vcc::silu_and_mul: the last dimension of x must be even, it is 7"),
        ("double", "vcc::silu_and_mul: x must be float32, bfloat16 or float16, it is Double"),
        ("experts", "vcc::topk_softmax: 2 of 600 experts; the kernel takes 32 of 512 at most"),
    ],
)
def test_what_no_kernel_takes_is_refused_with_the_reason(
    found: dict[str, Any], call: str, text: str
) -> None:
    assert text in found["refusals"][call]


def test_without_cubins_an_operator_says_so_and_the_library_loads() -> None:
    code = (
        "import torch\n"
        "from support.cuda_cases import Case\n"
        "from support.cuda_launches import called\n"
        "from support.fake_cuda import Fake\n"
        "from vcc.engine.ops.register import load_ops\n"
        "fake = Fake()\n"
        "assert load_ops().name == 'cpu', 'compiler'\n"
        "torch.ops.vcc.use_cuda_driver(torch.frombuffer(bytearray(fake.path.encode()),"
        " dtype=torch.uint8))\n"
        "called(Case('silu_and_mul', '', {'x': torch.randn(2, 8)}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "compiler" in done.stderr:
        pytest.skip("libvcc_ops was not built")
    assert "vcc::silu_and_mul has no CUDA kernel for sm_90 in this install" in done.stderr
