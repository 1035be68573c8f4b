"""A launch's kernel with its cubin, as the planner takes Triton's."""

from __future__ import annotations

from collections.abc import Iterable

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.planner.sources import KernelSource
from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.cuda.call import WARP, CudaCall, refused
from vcc.engine.torch_shim.triton_build import CompiledKernel, block_bytes

SOURCE = "csrc/kernels"
"""What stands for the module of a kernel that is not Triton's: the CPU check cannot run it."""


def kernel_of(call: CudaCall, arch: str) -> CompiledKernel:
    """The kernel that a launch needs.

    Args:
        call: the launch.
        arch: the target, such as `sm_90`.

    Raises:
        CompileError: this install has no cubin for the target.
        IntegrityError: the cubin is damaged, or is not of these sources.
    """
    if why := cubins.missing(arch):
        raise refused(call.op, why)
    index = cubins.index(arch)
    data = cubins.read(index, call.op)
    entry = index.cubins[call.op]
    parameters = tuple((one.name, one.kind) for one in call.parameters)
    symbol = entry.symbols.get(call.symbol)
    size = block_bytes(parameters, 0)
    if symbol is None or symbol.param_bytes != size or call.threads > symbol.threads:
        raise IntegrityError(
            f"the cubin of {call.op} does not fit this version of vcc",
            f"a launch of {call.symbol} has {size} bytes of parameters and {call.threads} threads,"
            f" the cubin says {symbol}",
            "reinstall vcc, so that its kernels are compiled again",
        )
    source = KernelSource(entry.sha256, call.symbol, SOURCE, "", parameters, {})
    return CompiledKernel(
        data, entry.sha256, call.symbol, call.threads // WARP, 0, parameters, source, 0
    )


def own_driver_floor(kernels: Iterable[CompiledKernel]) -> int:
    """The oldest driver that loads those of the kernels that are ours; 0 without any."""
    used = {one.digest for one in kernels if one.source.module == SOURCE}
    found = [0]
    for arch in cubins.architectures() if used else ():
        index = cubins.index(arch)
        if used & {entry.sha256 for entry in index.cubins.values()}:
            found.append(index.driver)
    return max(found)
