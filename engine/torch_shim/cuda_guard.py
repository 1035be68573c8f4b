"""The device guard of a GPU that is not there, for torch builds without CUDA."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import torch

from vcc.cache.errors import DeviceError
from vcc.engine import native
from vcc.engine.config.environment import read_environment

SOURCE = "guard.cpp"
"""Installed beside the libraries, for a torch that the install was not built against."""


def install_guard(scratch: Path) -> None:
    """Let torch make fake CUDA tensors in this process.

    A CUDA build of torch has a guard for that. For a CPU build the library of the install is
    loaded; as its layout belongs to one release of torch, for another one it is compiled here.

    Args:
        scratch: a folder of this build for what is compiled.

    Raises:
        DeviceError: there is no library for this torch, and none can be compiled.
    """
    private = cast(Any, torch._C)
    if private._has_cuda:
        private._ensureCUDADeviceGuardSet()
        return
    path = native.library(guard_name()) or _compiled(scratch)
    torch.ops.load_library(str(path))


def guard_name() -> str:
    """The library's name without prefix and suffix, such as `vcc_guard-2.13`."""
    return "vcc_guard-" + ".".join(torch.__version__.split(".")[:2])


def _compiled(scratch: Path) -> Path:
    beside = native.library("vcc_abi")
    source = beside.with_name(SOURCE) if beside else Path(SOURCE)
    names = (read_environment().cxx, "g++", "clang++")
    compiler = next((path for name in names if name and (path := shutil.which(name))), None)
    if compiler is None or not source.is_file():
        raise _missing("there is no C++ compiler" if source.is_file() else f"{source} is missing")
    home, made = Path(torch.__file__).parent, scratch / "libvcc_guard.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-std=c++20", str(source), "-o", str(made)]
    command += [f"-I{home / 'include'}", f"-L{home / 'lib'}", "-lc10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _missing(done.stderr.strip()[-500:])
    return made


def _missing(why: str) -> DeviceError:
    return DeviceError(
        "cannot compile for a GPU with this CPU build of torch",
        f"{guard_name()} was not built when vcc was installed, and cannot be built now: {why}",
        "install a C++ compiler, or a CUDA build of torch (it needs no GPU)",
    )
