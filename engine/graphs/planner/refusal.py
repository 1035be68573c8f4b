"""What a node table cannot express, said by name, with what to do instead."""

from __future__ import annotations

from pathlib import Path

from vcc.cache.errors import CompileError

GPU = Path("/dev/nvidiactl")
"""Present where a driver runs a GPU; asking CUDA would start it."""


def refused(where: str, what: str, why: str = "", *, gpu: Path = GPU) -> CompileError:
    """The error for something in a model that no table can hold.

    Args:
        where: the piece or operator that holds it.
        what: the operator or kernel, by name.
        why: what is wrong with it; empty for an operator without a kernel of its own.
        gpu: tells whether the recorder could be used here.
    """
    recorder = "record it here from eager kernels: --compile none"
    elsewhere = "record it on a machine with a GPU: --compile none"
    return CompileError(
        f"{where}: a node table cannot express {what}",
        why or "it holds launches of compiled kernels and matrix products, nothing else",
        f"name it in splitting_ops if vcc has a kernel for it, or "
        f"{recorder if gpu.exists() else elsewhere}",
    )
