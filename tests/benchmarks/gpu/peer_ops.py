"""The peer's attention: vcc's own Triton kernels as CUDA implementations of `torch.ops.vcc.*`.

So that a comparison with torch.compile compares everything but attention. The kernels, their grids
and their workspaces come from engine/ops/triton/registry.py, as a build takes them; here Triton
launches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.table.types import When
from vcc.engine.ops.register import load_ops
from vcc.engine.ops.triton import registry
from vcc.engine.torch_shim.profiles import PROFILES

NAMES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}


class CudaOps:
    """Implementations for one block size and block table width; keep the object alive.

    Args:
        target: whose device profile the kernels are chosen by.
        block_size: tokens of a KV block.
        table_width: KV blocks of a sequence at most.
    """

    def __init__(self, target: str, block_size: int, table_width: int) -> None:
        load_ops()
        self._shape = (PROFILES[target], block_size, table_width)
        self._made: dict[Any, Any] = {}
        self._library = torch.library.Library("vcc", "IMPL")
        self._library.impl("kv_write", self.kv_write, "CUDA")
        self._library.impl("paged_attention", self.paged_attention, "CUDA")

    def kv_write(self, k: Tensor, v: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
        """See engine/ops/schemas.py."""
        tensors = {"k": k, "v": v, "kv_cache": kv_cache, "slot_mapping": slot_mapping}
        self._run("kv_write", {}, tensors, {"T": k.shape[0], "K": kv_cache.shape[1]})

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
        """See engine/ops/schemas.py."""
        tensors = {
            "q": q,
            "kv_cache": kv_cache,
            "block_table": block_table,
            "seq_lens": seq_lens,
            "query_start": query_start,
            "out": out,
        }
        literals = {"scale": scale, "sliding_window": sliding_window, "soft_cap": soft_cap}
        sizes = {"T": q.shape[0], "B": seq_lens.shape[0], "K": kv_cache.shape[1]}
        self._run("paged_attention", literals, tensors, sizes)

    def _run(
        self,
        name: str,
        literals: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        sizes: Mapping[str, int],
    ) -> None:
        device = next(iter(tensors.values())).device
        made = self._launches(name, literals, tensors)
        homes = dict(tensors)
        for scratch in made.workspaces:
            shape = evaluate_all(scratch.shape, sizes)
            dtype = getattr(torch, scratch.dtype)
            homes[scratch.name] = torch.empty(shape, dtype=dtype, device=device)
        uniform = sizes["T"] == sizes.get("B")
        for launch in made.launches:
            if launch.when is When.ALWAYS or (launch.when is When.UNIFORM) == uniform:
                _launch(launch, homes, sizes)

    def _launches(
        self, name: str, literals: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> Any:
        layouts = {n: _layout(t) for n, t in tensors.items() if n in ("k", "v", "q", "out")}
        cache = tensors["kv_cache"]
        layouts["kv_cache"] = registry.TensorLayout((2, "K", *cache.shape[2:]))
        key = (name, tuple(literals.values()), tuple(map(str, layouts.values())), cache.dtype)
        if key not in self._made:
            facts = registry.Facts(NAMES[cache.dtype], *self._shape)
            self._made[key] = registry.launches(name, {**literals, **layouts}, facts)
        return self._made[key]


def _layout(tensor: Tensor) -> Any:
    return registry.TensorLayout(("T", *tensor.shape[1:]), tuple(tensor.stride()))


def _launch(launch: Any, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> None:
    """One launch by Triton, with the arguments in the order of the kernel's parameters."""
    spec = launch.kernel
    values = {
        name: tensors[value] if kind.startswith("*") else evaluate(value, sizes)
        for name, kind in spec.parameters
        for value in [launch.arguments[name]]
    }
    options = {"num_warps": spec.num_warps, "num_stages": spec.num_stages}
    grid = evaluate_all(launch.grid, sizes)
    spec.function[grid](**values, **dict(spec.constants), **options)
