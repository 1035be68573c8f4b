"""Checks of indices in Inductor's C++: a bad index ends the call, not the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vcc.engine.torch_shim.aoti_runner import OUTSIDE

_DECLARED = "std::atomic<bool> outside{false};"
_RAISED = f'AOTI_TORCH_CHECK(!outside.load(), "{OUTSIDE}");'


@dataclass(slots=True, eq=False)
class _Region:
    """A parallel region of a kernel: whether a loop in it checks an index."""

    checked: bool = False


@contextmanager
def checks_that_return() -> Iterator[None]:
    """Inside, loops that check an index tell the code behind their parallel region.

    Inductor checks where it reads, with an exception, and what leaves an OpenMP region that way
    ends the process. So each such loop body has a `try`, whose `catch` sets a flag, and the flag is
    looked at behind the region, from where the caller is reached. Other iterations go on: one more
    look at the flag in each would keep a compiler from moving the check out of an inner loop.
    """
    from torch._inductor.codegen import cpp

    kernels: Any = cpp.CppKernel
    sharing: Any = cpp.WorkSharing
    body, parallel = kernels.gen_body, sharing.parallel
    regions: list[_Region] = []

    def in_a_region(self: Any, threads: int) -> None:
        if self.in_parallel and threads != self.num_threads:
            self.close()
        if not self.in_parallel:
            _open(self, regions)
        parallel(self, threads)

    def guarded(self: Any, code: Any = None) -> Any:
        made = body(self, code)
        checked = regions and "TORCH_CHECK(" in made.getvalue()
        return _guarded(made, regions[-1]) if checked else made

    kernels.gen_body, sharing.parallel = guarded, in_a_region
    try:
        yield
    finally:
        kernels.gen_body, sharing.parallel = body, parallel


def _open(sharing: Any, regions: list[_Region]) -> None:
    """A block around the region that is about to begin, with the flag and the look at it."""
    code, region = sharing.code, _Region()
    sharing.stack.enter_context(code.indent())
    code.writeline(_line(region, _DECLARED))

    def end() -> None:
        code.writeline(_line(region, _RAISED))
        regions.remove(region)

    sharing.stack.callback(end)
    regions.append(region)


def _line(region: _Region, text: str) -> Any:
    """A line that is there when the region checks; Inductor asks once all is generated."""
    from torch._inductor.utils import DeferredLineBase

    class Line(DeferredLineBase):
        def __call__(self) -> str | None:
            return self.line if region.checked else None

        def _new_line(self, line: str) -> Any:
            return _line(region, line)

    return Line(text)


def _guarded(made: Any, region: _Region) -> Any:
    region.checked = True
    code = type(made)()
    code.writeline("try")
    with code.indent():
        code.splice(made)
    code.writeline("catch (...)")
    with code.indent():
        code.writeline("outside = true;")
    return code
