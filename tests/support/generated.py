"""The C++ that Inductor generates for a piece, without running a compiler on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vcc.engine.partition.canonical import fake_arguments
from vcc.engine.torch_shim.inductor import compile_library, merged_options
from vcc.engine.types import Piece


class _Stop(BaseException):
    """Leaves Inductor past its handlers of ordinary exceptions."""


@contextmanager
def _stopped_before_the_compiler() -> Iterator[list[str]]:
    from torch._inductor.codecache import AotCodeCompiler

    found: list[str] = []

    def stop(graph: Any, wrapper: str, kernels: str, external: str, *_: Any, **__: Any) -> None:
        found.extend((wrapper, kernels, external))
        raise _Stop

    original = AotCodeCompiler.compile
    AotCodeCompiler.compile = stop
    try:
        yield found
    finally:
        AotCodeCompiler.compile = original


def source_of(piece: Piece, options: Mapping[str, Any] | None = None) -> str:
    """Wrapper, kernels and table of external ops, one after the other."""
    merged = merged_options("x86-64-v3", options or {})
    with _stopped_before_the_compiler() as found:
        try:
            compile_library(piece.graph, fake_arguments(piece), merged)
        except _Stop:
            return "\n".join(str(part) for part in found)
    raise AssertionError("Inductor generated no code")
