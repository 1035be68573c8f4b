"""What a node table cannot express, said by name, with what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcc.cache.errors import CompileError
from vcc.engine.recordable import why_not_recorded
from vcc.engine.request import Settled

GPU = Path("/dev/nvidiactl")
"""Present where a driver runs a GPU; asking CUDA would start it."""


class NoTable(CompileError):
    """Something that no table can hold; elsewhere in a build nothing tells it from its kind."""


def refused(where: str, what: str, why: str = "", *, gpu: Path = GPU) -> NoTable:
    """The error for something in a model that no table can hold.

    Args:
        where: the piece or operator that holds it.
        what: the operator or kernel, by name.
        why: what is wrong with it; empty for an operator without a kernel of its own.
        gpu: tells whether the recorder could be used here.
    """
    recorder = "record it here from eager kernels: --compile none"
    elsewhere = "record it on a machine with a GPU: --compile none"
    return NoTable(
        f"{where}: a node table cannot express {what}",
        why or "it holds launches of compiled kernels and matrix products, nothing else",
        f"name it in splitting_ops if vcc has a kernel for it, or "
        f"{recorder if gpu.exists() else elsewhere}",
    )


@contextmanager
def hints_for(settled: Settled) -> Iterator[None]:
    """Where a model cannot be recorded, let no refusal send the reader to a recording.

    Raises:
        NoTable: with what can be done for this model.
    """
    try:
        yield
    except NoTable as error:
        why = why_not_recorded(settled)
        if not why:
            raise
        hint = f"compile it for the CPU: --target cpu; it cannot be recorded: {why}"
        raise NoTable(error.what, error.why, hint) from error
