"""Which values Inductor's C++ keeps in a fused loop: only those that every user reads by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def readers_only() -> Iterator[None]:
    """Inside, a value stays in memory where one of its users does not read it by its name.

    Inductor asks each user of a value in which order it reads it, to see whether the value can live
    inside a fused loop. A user that only has to run later reads nothing: the copy of a result into
    an argument that this value was computed from. Nor does one that knows what an in-place write
    changed by the name from before the write. Both end in a KeyError (issue 196570 of pytorch).
    Here they have no index, which is equal to no loop's; the value is then treated like one that is
    read in another order.
    """
    from torch._inductor.loop_body import LoopBody

    bodies: Any = LoopBody
    original = bodies.get_read_expr

    def index_or_none(self: Any, buffer_name: str) -> Any:
        try:
            return original(self, buffer_name)
        except KeyError:
            return None

    bodies.get_read_expr = index_or_none
    try:
        yield
    finally:
        bodies.get_read_expr = original
