"""vcc's opaque operators on CUDA tensors, as launches of its Triton kernels: for recording only.

A step that is served never runs through Triton; here its kernels run once, to be captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.table.types import When
from vcc.engine.ops.cuda import eager
from vcc.engine.ops.triton.registry import Facts, Launches, TensorLayout, launches
from vcc.engine.torch_shim.profiles import DeviceProfile

NAMESPACE = "vcc"


class EagerOps:
    """Operators that launch at once on the current stream.

    Args:
        profile: the device.

    Attributes:
        uniform: which of an operator's launches run: those of pure decode, or those of any step.
            A captured graph serves every batch of its descriptor, so shapes cannot tell.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.profile, self.uniform = profile, False

    def register(self) -> torch.library.Library:
        """Make them CUDA's implementations of `torch.ops.vcc`, for as long as the result lives."""
        library = torch.library.Library(NAMESPACE, "IMPL")
        if not eager.usable(self.profile.target):
            library.impl("kv_write", self.kv_write, "CUDA")
        library.impl("paged_attention", self.paged_attention, "CUDA")
        return library

    def kv_write(self, k: Tensor, v: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
        """As `torch.ops.vcc.kv_write`."""
        tensors = {"k": k, "v": v, "kv_cache": kv_cache}
        facts = self._facts(k, kv_cache, 1)
        plan = launches("kv_write", {name: _layout(one) for name, one in tensors.items()}, facts)
        sizes = {"T": k.shape[0], "B": k.shape[0], "K": kv_cache.shape[1]}
        self._run(plan, {**tensors, "slot_mapping": slot_mapping}, sizes)

    def paged_attention(
        self,
        q: Tensor,
        kv_cache: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        query_start: Tensor,
        out: Tensor,
        scale: float,
        sliding_window: int = 0,
        soft_cap: float = 0.0,
    ) -> None:
        """As `torch.ops.vcc.paged_attention`."""
        tensors = {"q": q, "kv_cache": kv_cache, "out": out}
        literals: dict[str, Any] = {name: _layout(one) for name, one in tensors.items()}
        literals |= {"scale": scale, "sliding_window": sliding_window, "soft_cap": soft_cap}
        plan = launches("paged_attention", literals, self._facts(q, kv_cache, block_table.shape[1]))
        indices = {"block_table": block_table, "seq_lens": seq_lens, "query_start": query_start}
        sizes = {"T": q.shape[0], "B": seq_lens.shape[0], "K": kv_cache.shape[1]}
        self._run(plan, {**tensors, **indices}, sizes)

    def _facts(self, like: Tensor, kv_cache: Tensor, width: int) -> Facts:
        return Facts(NAMES[like.dtype], self.profile, kv_cache.shape[2], width)

    def _run(self, plan: Launches, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
        device = next(iter(tensors.values())).device
        values: dict[str, Any] = dict(tensors)
        for space in plan.workspaces:
            shape, dtype = evaluate_all(space.shape, sizes), getattr(torch, space.dtype)
            values[space.name] = torch.empty(shape, dtype=dtype, device=device)
        skipped = When.MIXED if self.uniform else When.UNIFORM
        for launch in plan.launches:
            if launch.when is skipped:
                continue
            arguments = {
                name: values[value] if name in launch.access else evaluate(value, sizes)
                for name, value in launch.arguments.items()
            }
            spec: Any = launch.kernel  # Triton's all: a plan of csrc is not asked for here
            options = {"num_warps": spec.num_warps, "num_stages": spec.num_stages}
            grid = evaluate_all(launch.grid, sizes)
            spec.function[grid](**arguments, **spec.constants, **options)


def _layout(tensor: Tensor) -> TensorLayout:
    return TensorLayout(tuple(tensor.shape), tuple(tensor.stride()))
