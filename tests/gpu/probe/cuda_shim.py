"""Compile for a CUDA device that is not there: what torch and Triton must be told, as tables.

Private API of torch, kept in the probe: issue 2 moves what it keeps to `engine/torch_shim/`. Every
entry answers one question that tracing or Inductor asks; nothing allocates or launches. Works in a
process that builds and ends: the answers stay installed.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Profile:
    """What code generation asks about a device; a real one prints these through torch.

    Attributes:
        name: as `torch.cuda.get_device_name()`.
        capability: compute capability, major and minor.
        properties: fields of `torch.cuda.get_device_properties()`, in bytes and counts.
    """

    name: str
    capability: tuple[int, int]
    properties: Mapping[str, int]

    @property
    def arch(self) -> int:
        """90 for compute capability 9.0."""
        return self.capability[0] * 10 + self.capability[1]


SM_90 = Profile(
    name="NVIDIA H200",
    capability=(9, 0),
    properties={
        "multi_processor_count": 132,
        "warp_size": 32,
        "total_memory": 143 << 30,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_block_optin": 227 << 10,
        "shared_memory_per_multiprocessor": 228 << 10,
        "L2_cache_size": 60 << 20,
    },
)


def install(profile: Profile, scratch: Path) -> None:
    """Make torch and Triton compile for `profile` in this process.

    Args:
        profile: the device to compile for.
        scratch: a folder for the compiled guard.
    """
    _install_guard(scratch)
    _answer_torch(profile)
    _answer_triton(profile)
    _keep_pattern_tables_off_the_device()


def _install_guard(scratch: Path) -> None:
    if torch._C._has_cuda:  # a CUDA build brings its own no-op guard
        torch._C._ensureCUDADeviceGuardSet()
        return
    library = scratch / "libprobe_guard.so"
    if not library.exists():
        _compile_guard(library)
    ctypes.CDLL(str(library)).vcc_probe_install_guard()


def _compile_guard(library: Path) -> None:
    compiler = next(
        (path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), ""
    )
    if not compiler:
        raise RuntimeError("no C++ compiler for the device guard: install g++")
    home = Path(torch.__file__).parent
    library.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-O1", "-std=c++20", str(HERE / "guard.cpp")]
    command += [f"-I{home / 'include'}", f"-L{home / 'lib'}", "-lc10", "-o", str(library)]
    subprocess.run(command, check=True)


class _NoContext:
    """Stands for `torch.cuda.device(...)` and its kin: entering changes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> _NoContext:
        return self

    def __exit__(self, *_: object) -> None: ...


def _answers(profile: Profile) -> dict[str, Callable[..., Any]]:
    """Device queries by name, the same for `torch.cuda` and for the device interface."""
    major, minor = profile.capability
    properties = SimpleNamespace(
        name=profile.name, major=major, minor=minor, gcnArchName="", **profile.properties
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: profile.capability,
        "get_compute_capability": lambda *_: profile.arch,
        "is_bf16_supported": lambda *_, **__: True,
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
        "exchange_device": lambda *_: 0,
        "maybe_exchange_device": lambda *_: 0,
        "get_raw_stream": lambda *_: 0,
        "_lazy_init": lambda: None,
        "memory_allocated": lambda *_: 0,
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
    }


def _answer_torch(profile: Profile) -> None:
    from torch._dynamo.device_interface import CudaInterface

    answers = _answers(profile)
    for name in answers.keys() & vars(torch.cuda).keys():
        setattr(torch.cuda, name, answers[name])
    torch.cuda.device = _NoContext  # type: ignore[misc,assignment]
    torch.cuda._DeviceGuard = _NoContext  # type: ignore[misc,assignment]
    for owner in (CudaInterface, CudaInterface.Worker):
        for name in answers.keys() & set(dir(owner)):
            setattr(owner, name, staticmethod(answers[name]))
    if not hasattr(
        torch._C, "_cuda_getCurrentRawStream"
    ):  # imported by name in Inductor's prologue
        torch._C._cuda_getCurrentRawStream = lambda _: 0  # type: ignore[attr-defined]


def _answer_triton(profile: Profile) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    limits = profile.properties
    facts = {
        "max_shared_mem": limits["shared_memory_per_block_optin"],
        "max_num_regs": limits["regs_per_multiprocessor"],
        "multiprocessor_count": limits["multi_processor_count"],
        "warpSize": limits["warp_size"],
    }

    class Absent(CudaDriver):  # type: ignore[misc]
        """Compiles; loading gives a handle of nothing, launching is not possible."""

        def __init__(self) -> None:
            self.utils = SimpleNamespace(
                get_device_properties=lambda _: facts,
                load_binary=lambda *_: (0, 0, 32, 0, 1024),
                unload_module=lambda *_: None,
            )
            self.launcher_cls = lambda *_: None
            self.get_current_device = lambda: 0
            self.get_current_stream = lambda *_: 0
            self.get_device_capability = lambda *_: profile.capability
            self.set_current_device = lambda _: None

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", profile.arch, limits["warp_size"])

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

    triton.runtime.driver.set_active(Absent())


def _keep_pattern_tables_off_the_device() -> None:
    """Inductor traces its pattern tables on real tensors of the device: trace on the CPU, or skip.

    Attention patterns are skipped: attention is a splitting op here.
    """
    from torch._inductor.fx_passes import fuse_attention, joint_graph, misc_patterns, pad_mm

    tables: tuple[tuple[Any, str, bool], ...] = (
        (fuse_attention, "_sfdp_init", False),
        (pad_mm, "_pad_mm_init", True),
        (misc_patterns, "_misc_patterns_init", True),
    )
    for module, name, on_cpu in tables:
        original = getattr(module, name, None)
        if original is None:
            continue
        replacement = _on_cpu(original) if on_cpu else _skipped
        setattr(module, name, replacement)
        if hasattr(joint_graph, name):
            setattr(joint_graph, name, replacement)


def _on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_, **__: original(torch.device("cpu"))


def _skipped(*_: Any, **__: Any) -> None:
    return None
