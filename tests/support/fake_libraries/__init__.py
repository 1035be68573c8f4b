"""Doubles of CUPTI and cuBLASLt over the libcuda double, and an environment with all three."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from support.fake_cuda import CSRC, library
from support.fake_cuda.cubins import cubin

HERE = Path(__file__).parent

LT_KERNELS: Mapping[str, tuple[int, ...]] = {
    # a, w, c, d, workspace; a structure that is written in part; a number
    "lt_main": (8, 8, 8, 8, 8, 16, 8),
    "lt_reduce": (8, 8),
    # a, w, bias, d, scales of a, scales of w; sizes, type, form, whether there is a bias
    "lt_scaled": (8, 8, 8, 8, 8, 8, 24),
}


@cache
def toolkit() -> Path:
    """A folder for CUDA_HOME with both doubles and the cubin of the products, built once."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    sources = {name: HERE / f"{name}.cpp" for name in ("cupti", "cublaslt")}
    digest = hashlib.sha256(repr(LT_KERNELS).encode())
    for path in sources.values():
        digest.update(path.read_bytes())
    home = Path(tempfile.gettempdir()) / f"vcc-fake-cuda-{os.getuid()}-{digest.hexdigest()[:16]}"
    made = home / "lib64"
    if not (home / "lt.cubin").exists():
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, soname in (("cupti", "libcupti.so.13"), ("cublaslt", "libcublasLt.so.13")):
            part = made / f"{soname}.{os.getpid()}"
            flags = ("-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{CSRC}")
            command = [compiler, *flags, str(sources[name]), "-ldl", "-o", str(part)]
            subprocess.run(command, check=True)
            part.rename(made / soname)
        (home / "lt.cubin").write_bytes(cubin(LT_KERNELS))
    return home


def environment(**settings: str) -> dict[str, str]:
    """Variables of a process on the doubles; `lt="split"` becomes VCC_FAKE_LT."""
    named = {f"VCC_FAKE_{name.upper()}": value for name, value in settings.items()}
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "VCC_LIBCUDA": str(library()),
        "CUDA_HOME": str(toolkit()),
        "VCC_FAKE_LT_CUBIN": str(toolkit() / "lt.cubin"),
        **named,
    }
