"""The kernels of `csrc/kernels` on the CPU: compiled by the host's compiler, thread by thread.

The same sources and the same launches as on a device. What this cannot show is what only a GPU
does: the compiled code itself, speed, and races between blocks.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from support.sources import ROOT
from vcc.engine.ops.cuda.call import CudaCall, Parameter, Result, Tensor
from vcc.engine.ops.cuda.table import cuda_call

KERNELS, HERE = ROOT / "csrc" / "kernels", Path(__file__).parent
OWN_MACROS = ("KERNEL", "FORM", "ROW", "PART")
NUMBERS: Mapping[str, Any] = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
}
POISON = 0xA5


def compiler() -> str | None:
    """The host's C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("clang++")


def build(folder: Path, kernels: Path = KERNELS) -> Path:
    """Compile every kernel into one library; all in one file, which reads the headers once."""
    lines = []
    for path in sorted(kernels.glob("*.cu")):
        lines += [f'#include "{path.name}"', *(f"#undef {name}" for name in OWN_MACROS)]
    source, library = folder / "all.cpp", folder / "libkernels.so"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [
        *(compiler() or "c++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror"),
        *("-Wno-unknown-pragmas", "-ffp-contract=off", "-shared", "-fPIC"),
        *("-DVCC_KERNEL_HOST", f"-I{kernels}", f"-I{HERE}"),
        *("-o", str(library), str(source), str(HERE / "fibers.cpp")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return library


@cache
def load(library: Path) -> ctypes.CDLL:
    """The library, its functions declared."""
    found = ctypes.CDLL(str(library))
    found.host_launch.restype = ctypes.c_char_p
    found.host_allow.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


def sizes_of(library: ctypes.CDLL, symbol: str) -> list[int]:
    """Bytes of a kernel's parameters."""
    sizes = (ctypes.c_size_t * 64)()
    count = library.host_parameters(symbol.encode(), sizes, 64)
    assert count >= 0, f"there is no kernel {symbol}"
    return list(sizes[:count])


def layout(tensor: torch.Tensor) -> Tensor:
    """A tensor as launches see it."""
    name = str(tensor.dtype).removeprefix("torch.")
    return Tensor(name, tuple(tensor.shape), tuple(tensor.stride()))


def run(
    library: ctypes.CDLL,
    op: str,
    tensors: Mapping[str, torch.Tensor],
    numbers: Mapping[str, Any],
    seed: int = 0,
) -> tuple[torch.Tensor, ...]:
    """Run an operator; its results, whose memory was poisoned before.

    Raises:
        AssertionError: the kernel left its memory, or its threads waited for ever.
    """
    call = cuda_call(op, {name: layout(tensor) for name, tensor in tensors.items()}, numbers)
    results = {one.name: poisoned(one) for one in call.results}
    launch(library, call, {**tensors, **results}, seed)
    return tuple(results.values())


def poisoned(result: Result) -> torch.Tensor:
    """Memory for a result, full of what no kernel writes."""
    dtype = getattr(torch, result.dtype)
    made = torch.full((math.prod(result.shape) * dtype.itemsize,), POISON, dtype=torch.uint8)
    return made.view(dtype).as_strided(result.shape, result.stride)


def launch(
    library: ctypes.CDLL, call: CudaCall, tensors: Mapping[str, torch.Tensor], seed: int
) -> None:
    """Launch as a player does: parameters one after another, each of its size."""
    assert sizes_of(library, call.symbol) == [size_of(one) for one in call.parameters]
    values = []
    for one in call.parameters:
        if one.kind.startswith("*"):
            tensor = tensors[str(one.value)]
            library.host_allow(*reach(tensor), int(one.written))
            values.append(ctypes.c_void_p(tensor.data_ptr()))
        else:
            values.append(NUMBERS[one.kind](one.value))
    given = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    said = library.host_launch(call.symbol.encode(), int(call.blocks), call.threads, given, seed)
    assert not said, f"{call.symbol}: {said.decode()}"


def size_of(parameter: Parameter) -> int:
    """Bytes of a parameter."""
    return 8 if parameter.kind.startswith("*") else ctypes.sizeof(NUMBERS[parameter.kind])


def reach(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor, and how far its last element is from there."""
    if not tensor.numel():
        return tensor.data_ptr(), 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()
