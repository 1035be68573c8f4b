"""docs/ops.md, "With a CUDA kernel": its kernel and launch, compiled and run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import host_kernels
from support.sources import ROOT

from vcc.engine.graphs.expr import evaluate
from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.cuda.call import CudaCall, Tensor

TEXT = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- end {name} -->", TEXT, re.DOTALL)
    assert found is not None, name
    return found[1]


def launch_of(tensor: Tensor) -> CudaCall:
    made: dict[str, Any] = {}
    exec(compile(block("cuda launch"), "soft_cap.py", "exec"), made)
    call: CudaCall = made["soft_cap_call"]("soft_cap", {"x": tensor}, {"cap": 5.0})
    return call


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of csrc/kernels with the page's kernel as its only one."""
    place = tmp_path_factory.mktemp("page") / "csrc" / "kernels"
    shutil.copytree(host_kernels.KERNELS, place, ignore=shutil.ignore_patterns("*.cu"))
    (place / "soft_cap.cu").write_text(block("cuda kernel"))
    return place


def test_kernel_and_launch_are_short() -> None:
    assert len((block("cuda kernel") + block("cuda launch")).splitlines()) < 40


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_kernel_of_the_page_computes_what_it_says(kernels: Path, dtype: torch.dtype) -> None:
    if host_kernels.compiler() is None:
        pytest.skip("no C++ compiler")
    if not (kernels / "libkernels.so").exists():
        host_kernels.build(kernels, kernels)
    library = host_kernels.load(kernels / "libkernels.so")
    x = (10 * torch.randn(7, 301)).to(dtype)
    out = torch.empty_like(x)
    host_kernels.launch(library, launch_of(host_kernels.layout(x)), {"x": x, "out": out}, 0)
    torch.testing.assert_close(out, (5 * torch.tanh(x.float() / 5)).to(dtype))


def test_its_grid_is_an_expression() -> None:
    call = launch_of(Tensor("bfloat16", ("T", 300), (300, 1)))
    assert evaluate(call.blocks, {"T": 100}) == -(-100 * 300 // 2048)


def test_the_kernel_of_the_page_is_compiled_to_a_cubin(kernels: Path, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    for folder in ("engine", "cache"):
        link = kernels.parents[1] / folder
        if not link.exists():
            link.symlink_to(ROOT / folder)
    command = [sys.executable, str(kernels / "compile.py"), "--strict", "--nvcc", nvcc]
    subprocess.run([*command, "--out", str(tmp_path), "sm_90a"], check=True, timeout=300)
    entry = cubins.index("sm_90", tmp_path).cubins["soft_cap"]
    call = launch_of(Tensor("bfloat16", ("T", 300), (300, 1)))
    assert call.symbol in entry.symbols
    assert entry.symbols[call.symbol].threads == call.threads
