"""Triton kernels as a build makes them: compiled for a profile, launched by the driver from cubins.

Triton's run time has no part in it, as it has none where a table is played: arguments are bound by
name to the parameter block that the cubin declares, and a launch is the node of a graph.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.recorder.replay import Functions, Replay
from vcc.engine.graphs.table.types import Kernel
from vcc.engine.ops.triton.registry import KernelSpec
from vcc.engine.ops.triton.specs import POINTER_TYPES
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.torch_shim.triton_build import CompiledKernel

NUMBERS: Mapping[str, str] = {"i32": "<i", "i64": "<q", "fp32": "<f"}
ALIGNMENT = 16


class Built:
    """Compiles and launches.

    Args:
        profile: the device that cubins are for; the driver must be open (`calls.open_driver`).
        ready: called before each launch, such as torch's synchronisation.
    """

    def __init__(self, profile: DeviceProfile, ready: Callable[[], None] = lambda: None) -> None:
        self.profile, self.ready, self.launches = profile, ready, 0
        self._cubins: dict[str, bytes] = {}
        self._functions = Functions(self._cubins)
        self._made: dict[Any, CompiledKernel] = {}

    def through(self, function: Any) -> Launcher:
        """What the functions of `wrapped*.py` take in place of `wrap_triton`."""
        return Launcher(self, function)

    def run(self, spec: KernelSpec, grid: Sequence[int], arguments: Mapping[str, Any]) -> None:
        """One launch, to its end."""
        made = self._kernel(spec)
        threads = self.profile.warp_size * made.warps
        kernel = Kernel(made.digest, made.function, (threads, 1, 1), made.shared, made.param_bytes)
        self.ready()
        replay = Replay(self._functions)
        try:
            replay.launch_own(kernel, (*grid, 1, 1)[:3], block_of(made, arguments))
            replay.instantiate().launch()
        finally:
            replay.close()
        self.launches += 1

    def _kernel(self, spec: KernelSpec) -> CompiledKernel:
        key = spec.key()
        if key not in self._made:
            self._made[key] = made = spec.compile(self.profile)
            self._cubins[made.digest] = made.cubin
        return self._made[key]


OPTIONS = ("num_warps", "num_stages")
"""Of Triton, not of a kernel."""


class Launcher:
    """A kernel that is called as Triton's own are: `kernel[grid](…)`."""

    def __init__(self, built: Built, function: Any) -> None:
        self._built, self._function = built, function

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        return partial(self._call, grid)

    def _call(self, grid: Sequence[int], *values: Any, **named: Any) -> None:
        given = dict(zip(self._function.arg_names, values, strict=False)) | named
        fixed = {one.name for one in self._function.params if one.is_constexpr}
        options = {name: given.pop(name) for name in OPTIONS if name in given}
        free = {name: value for name, value in given.items() if name not in fixed}
        spec = KernelSpec(
            self._function,
            tuple((name, type_of(value)) for name, value in free.items()),
            {name: value for name, value in given.items() if name in fixed},
            frozenset(name for name, value in free.items() if aligned(value)),
            **options,
        )
        self._built.run(spec, grid, free)


def type_of(value: Any) -> str:
    """Triton's type of an argument."""
    if isinstance(value, Tensor):
        return POINTER_TYPES[NAMES[value.dtype]]
    return "i32" if isinstance(value, int) else "fp32"


def aligned(value: Any) -> bool:
    """Whether it is a pointer that a build knows to be aligned."""
    return isinstance(value, Tensor) and value.data_ptr() % ALIGNMENT == 0


def block_of(made: CompiledKernel, arguments: Mapping[str, Any]) -> bytes:
    """The parameter block of a launch."""
    block, at = bytearray(made.param_bytes), made.offsets()
    for name, kind in made.parameters:
        value = arguments[name]
        if isinstance(value, Tensor):
            struct.pack_into("<Q", block, at[name], value.data_ptr())
        else:
            struct.pack_into(NUMBERS[kind], block, at[name], value)
    return bytes(block)
