"""Triton kernels to cubins for a GPU that is not here, with the facts that a node table needs.

Needs Triton only: no torch, no device. Compile in a process of a build, whose environment switches
line information off (`inductor_environment`): without it a cubin depends on where its source lies.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcc.cache.digest import Digest
from vcc.cache.errors import CompileError
from vcc.engine.config.target import OLDEST_DRIVER
from vcc.engine.graphs.planner.sources import (
    KernelSource,
    constant,
    parameter_offsets,
    parameter_size,
)
from vcc.engine.torch_shim.profiles import DeviceProfile

NULL_POINTERS = 2
"""Triton ends every parameter list with two scratch pointers, null where no scratch is used."""

PARAMETER_BASES: Mapping[int, int] = {8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}
"""Where parameters start in constant bank 0, by major compute capability."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One specialisation of a kernel, compiled for one target.

    Attributes:
        cubin: the ELF file.
        digest: its SHA-256 in hex; a kernel is known by it, since names repeat.
        function: the symbol in the cubin.
        warps: 32-thread warps of a block, which has no other dimension.
        shared: bytes of dynamic shared memory.
        parameters: run-time parameters in launch order, (name, Triton type such as `*bf16`, `i32`).
        source: what it was compiled from.
        null_pointers: pointers behind the parameters, null in every launch.
    """

    cubin: bytes
    digest: str
    function: str
    warps: int
    shared: int
    parameters: tuple[tuple[str, str], ...]
    source: KernelSource
    null_pointers: int = NULL_POINTERS

    @property
    def param_bytes(self) -> int:
        """Bytes of the parameter block, with the null pointers at its end."""
        return block_bytes(self.parameters, self.null_pointers)

    def offsets(self) -> Mapping[str, int]:
        """Byte of each parameter in the block, by name."""
        return parameter_offsets(self.parameters)


def compile_kernel(
    function: Any,
    parameters: Mapping[str, str],
    constants: Mapping[str, Any],
    aligned: Collection[str],
    profile: DeviceProfile,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
) -> CompiledKernel:
    """Compile one specialisation of a `triton.jit` function.

    Args:
        function: the function.
        parameters: name to Triton type of the run-time parameters.
        constants: values of the constexpr parameters.
        aligned: parameters (pointers, numbers) that are always multiples of 16.
        profile: the device to compile for.
        num_warps, num_stages: Triton's options.

    Raises:
        CompileError: Triton refuses the kernel, or `kernel_of` does.
    """
    import triton
    from triton.compiler import ASTSource

    order = list(function.arg_names)
    signature = {**parameters, **dict.fromkeys(constants, "constexpr")}
    if signature.keys() != set(order):
        odd = sorted(signature.keys() ^ set(order))
        raise CompileError(
            f"kernel {function.__name__} is not given exactly its parameters", f"odd: {odd[0]}"
        )
    source = ASTSource(
        fn=function,
        signature={name: signature[name] for name in order},
        constexprs=dict(constants),
        attrs={(order.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {"num_warps": num_warps, "num_stages": num_stages}
    try:
        compiled = triton.compile(source, target=gpu_target(profile), options=options)
    except Exception as error:
        raise CompileError(
            f"kernel {function.__name__} does not compile for {profile.target}",
            f"{type(error).__name__}: {str(error).strip()[:1500]}",
        ) from error
    return kernel_of(compiled, profile, module=function.fn.__module__)


def gpu_target(profile: DeviceProfile) -> Any:
    """Triton's target value for a device."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", profile.arch, profile.warp_size)


def kernel_of(
    compiled: Any, profile: DeviceProfile, *, module: str = "", text: str = ""
) -> CompiledKernel:
    """The facts of what Triton compiled.

    Args:
        compiled: Triton's compiled kernel.
        profile: the device it is for.
        module, text: where its source is, one of both (`KernelSource`).

    Raises:
        CompileError: it needs what the player does not give (scratch memory, clusters), has a
            parameter that cannot be bound, or takes other parameters than its signature says.
    """
    metadata, data = compiled.metadata, bytes(compiled.asm["cubin"])
    _check_needs(metadata)
    names = list(compiled.src.fn.arg_names)
    kinds = tuple((n, k) for n, k in compiled.src.signature.items() if k != "constexpr")
    declared = declared_bytes(data, metadata.name, profile)
    if declared != block_bytes(kinds):
        raise CompileError(
            f"kernel {metadata.name} takes {declared} bytes of parameters",
            f"its signature {dict(kinds)} has {block_bytes(kinds)}",
        )
    constants = {names[at[0]]: value for at, value in compiled.src.constants.items()}
    digest = Digest.of(data).hex
    source = KernelSource(
        digest,
        compiled.src.fn.__name__,
        module,
        text,
        kinds,
        {name: constant(name, value) for name, value in constants.items()},
    )
    return CompiledKernel(
        data, digest, metadata.name, metadata.num_warps, metadata.shared, kinds, source
    )


def _check_needs(metadata: Any) -> None:
    scratch = {
        kind: size
        for kind in ("global", "profile")
        if (size := getattr(metadata, f"{kind}_scratch_size", 0))
    }
    ctas = getattr(metadata, "num_ctas", 1)
    special = [
        name for name in ("launch_cooperative_grid", "launch_pdl") if getattr(metadata, name, False)
    ]
    if scratch or ctas != 1 or special:
        raise CompileError(
            f"kernel {metadata.name} cannot be launched from a node table",
            f"it needs scratch {scratch}, {ctas} blocks a cluster, {', '.join(special) or 'no'}"
            " special launch",
            "device-side tensor descriptors and clusters are not supported",
        )


def block_bytes(parameters: Sequence[tuple[str, str]], null_pointers: int = NULL_POINTERS) -> int:
    """Bytes of a parameter block, each parameter at its natural alignment."""
    tail = tuple((f"scratch {index}", "*i8") for index in range(null_pointers))
    every = (*parameters, *tail)
    at = parameter_offsets(every)
    return max(at[name] + parameter_size(name, kind) for name, kind in every)


def declared_bytes(cubin: bytes, function: str, profile: DeviceProfile) -> int:
    """Bytes of the parameter block that a cubin itself declares, from its constant bank 0.

    Raises:
        CompileError: the cubin holds no such function.
    """
    sections = _sections(cubin)
    bank = sections.get(f".nv.constant0.{function}")
    if bank is None or f".text.{function}" not in sections:
        raise CompileError(f"the cubin has no function {function}")
    return bank - PARAMETER_BASES[profile.capability[0]]


def _sections(elf: bytes) -> dict[str, int]:
    """Section names of a 64-bit ELF file with their sizes."""
    table, size, count, names = (
        *struct.unpack_from("<Q", elf, 0x28),
        *struct.unpack_from("<HHH", elf, 0x3A),
    )
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * i) for i in range(count)]
    strings = headers[names][4]
    return {_text(elf, strings + header[0]): header[5] for header in headers}


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def toolkit(profile: DeviceProfile) -> str:
    """Version of the assembler that makes cubins for this device, such as "12.8"."""
    from triton.backends.nvidia import compiler

    find: Any = compiler.get_ptxas
    try:
        return str(find(profile.arch).version)
    except TypeError:  # an earlier Triton had one for all
        return str(find().version)


FIRST_DRIVERS: Mapping[int, int] = {80: 11000, 86: 11010, 89: 11080, 90: 11080, 100: 12080}
"""The CUDA version that first knew an architecture, as `cuDriverGetVersion` numbers them."""


def driver_floor(profile: DeviceProfile) -> int:
    """The oldest driver that plays these cubins, as `cuDriverGetVersion` numbers it.

    A cubin runs on every driver of its toolkit's major version ("minor version compatibility" in
    NVIDIA's "CUDA Compatibility") that knows the architecture.
    """
    major = int(toolkit(profile).partition(".")[0]) * 1000
    known = [floor for arch, floor in FIRST_DRIVERS.items() if arch <= profile.arch]
    return max(major, *known, OLDEST_DRIVER)
