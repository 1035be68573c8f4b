"""Kernels side by side in one launch: which ones Inductor may put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def varying_sums_apart() -> Iterator[None]:
    """Inside, a reduction whose length varies has a launch of its own.

    Inductor puts it beside others, and then refuses to write the code of the whole.
    """
    from torch._inductor.codegen import triton_combo_kernel

    module: Any = triton_combo_kernel
    original = module._custom_combo_kernel_horizontal_partition_algorithm

    def partition(nodes: Any, scheduling: Any, known: Any) -> list[Any]:
        alone = [one for one in nodes if known[one].features.is_reduction() and _varies(one)]
        rest = [one for one in nodes if one not in alone]
        together = original(rest, scheduling, known) if rest else []
        return [*together, *([one] for one in alone)]

    module.set_custom_combo_kernel_horizontal_partition(partition)
    try:
        yield
    finally:
        module.set_custom_combo_kernel_horizontal_partition(original)


def _varies(node: Any) -> bool:
    """Whether the length of a reduction is no number."""
    length = node.group[-1][-1]
    return bool(getattr(length, "free_symbols", ()))
