"""Compile for a CUDA device that is not there: what torch and Triton are told about it.

Every entry answers one question that tracing or Inductor asks; nothing allocates or launches. The
answers stay, and caches all over torch remember them: only a process that builds and ends is the
place for `install`. It works with CPU and CUDA builds of torch; a GPU that is there is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

from vcc.engine.torch_shim.cuda_guard import install_guard
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.torch_shim.triton_build import gpu_target


def install(profile: DeviceProfile, scratch: Path) -> None:
    """Make torch and Triton compile for `profile` in this process.

    Args:
        profile: the device to compile for.
        scratch: a folder of this build.

    Raises:
        DeviceError: this build of torch cannot make fake CUDA tensors.
    """
    install_guard(scratch)
    answer_torch(profile)
    answer_triton(profile)
    forget_answers()
    keep_patterns_off_the_device()


def forget_answers() -> None:
    """Let torch ask about Triton again: an earlier build for the CPU here heard that it has no GPU.

    `torch.utils._triton` keeps its answers for the life of the process, forks included.
    """
    from torch.utils import _triton

    for answer in vars(_triton).values():
        if clear := getattr(answer, "cache_clear", None):
            clear()


class _NoContext:
    """Stands for `torch.cuda.device(...)` and its kin: entering changes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> _NoContext:
        return self

    def __exit__(self, *_: object) -> None: ...


def device_properties(profile: DeviceProfile) -> SimpleNamespace:
    """The fields of `torch.cuda.get_device_properties()`."""
    major, minor = profile.capability
    return SimpleNamespace(
        name=profile.name,
        major=major,
        minor=minor,
        gcnArchName="",
        total_memory=profile.total_memory,
        multi_processor_count=profile.sm_count,
        L2_cache_size=profile.l2_cache,
        regs_per_multiprocessor=profile.registers_per_sm,
        max_threads_per_multi_processor=profile.threads_per_sm,
        max_threads_per_block=profile.threads_per_block,
        shared_memory_per_block=profile.shared_per_block,
        shared_memory_per_block_optin=profile.shared_per_block_optin,
        shared_memory_per_multiprocessor=profile.shared_per_sm,
        warp_size=profile.warp_size,
        clock_rate=1,
        memory_clock_rate=1,
        memory_bus_width=1,
    )


def _answers(profile: DeviceProfile) -> dict[str, Callable[..., Any]]:
    """Device queries by name, the same for `torch.cuda` and for the device interface."""
    properties = device_properties(profile)
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: profile.capability,
        "get_device_name": lambda *_: profile.name,
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


def answer_torch(profile: DeviceProfile) -> None:
    """Replace torch's device queries by the profile's answers, for good."""
    from torch._dynamo import device_interface
    from torch._subclasses import fake_tensor

    answers, cuda = _answers(profile), cast(Any, torch.cuda)
    for name in answers.keys() & vars(cuda).keys():
        setattr(cuda, name, answers[name])
    cuda.device = cuda._DeviceGuard = _NoContext
    interface: Any = device_interface.CudaInterface
    for owner in (interface, interface.Worker):
        for name in answers.keys() & set(dir(owner)):
            setattr(owner, name, staticmethod(answers[name]))
    # Imported by name in the prologue of Inductor's kernels.
    cast(Any, torch._C)._cuda_getCurrentRawStream = lambda _: 0
    if hasattr(fake_tensor, "init_gpu_context"):
        cast(Any, fake_tensor).init_gpu_context = lambda *_, **__: None


def answer_triton(profile: DeviceProfile) -> None:
    """Make Triton's active driver one that compiles for the profile and launches nothing."""
    import triton
    from triton.backends.nvidia.driver import CudaDriver

    facts = {
        "max_shared_mem": profile.shared_per_block_optin,
        "max_num_regs": profile.registers_per_sm,
        "multiprocessor_count": profile.sm_count,
        "warpSize": profile.warp_size,
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

        def get_current_target(self) -> Any:
            return gpu_target(profile)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

    triton.runtime.driver.set_active(Absent())


def keep_patterns_off_the_device() -> None:
    """Inductor traces its pattern tables on real tensors of the device: trace on the CPU, or skip.

    Attention patterns are skipped: attention is a splitting op.
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
