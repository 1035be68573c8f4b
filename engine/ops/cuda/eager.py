"""The cubins of this install, handed to `libvcc_ops`, which launches them on CUDA tensors.

The library reads no file: what it is given was verified here. Nothing touches a device.
"""

from __future__ import annotations

from typing import Any

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.ops.cuda import cubins

DEFINITIONS = (
    "add_cuda_kernel(Tensor op, int arch, Tensor cubin) -> ()",
    "use_cuda_driver(Tensor path) -> ()",
)
"""Operators by which the library is told; not for programs."""


def define(library: torch.library.Library) -> None:
    """Define what the library is told by; before it is loaded."""
    for definition in DEFINITIONS:
        library.define(definition)


def hand_over(driver: str = "") -> str:
    """Give the library every cubin of this install.

    Args:
        driver: the driver's file; empty for `libcuda.so.1`.

    Returns:
        Why it has none, or empty.
    """
    if driver:
        torch.ops.vcc.use_cuda_driver(_bytes(driver.encode()))
    try:
        for arch in cubins.architectures():
            index, number = cubins.index(arch), int(arch.removeprefix("sm_").rstrip("af"))
            for op in index.cubins:
                data = _bytes(cubins.read(index, op))
                torch.ops.vcc.add_cuda_kernel(_bytes(op.encode()), number, data)
    except IntegrityError as error:
        return f"{error.what}: {error.why}"
    return cubins.missing()


def usable(arch: str) -> bool:
    """Whether `torch.ops.vcc` launches kernels of csrc on CUDA tensors of an architecture here."""
    overload: Any = torch.ops.vcc.rms_norm.default
    kernel = overload.has_kernel_for_dispatch_key("CUDA")
    return bool(kernel) and torch.version.cuda is not None and not cubins.missing(arch)


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
