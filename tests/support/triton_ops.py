"""The project's Triton kernels as operators on tensors: by the interpreter or on a device.

Launches are those of the registry, with grids and arguments evaluated as the player does; scratch
memory is poisoned. TRITON_INTERPRET=1 must be set before Triton is loaded, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.table.types import When
from vcc.engine.ops.triton import wrapped
from vcc.engine.ops.triton.registry import (
    Facts,
    Launches,
    TensorLayout,
    advance_launches,
    launches,
    sample_launches,
)
from vcc.engine.torch_shim.profiles import PROFILES, DeviceProfile

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def run_kernel(spec: Any, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> None:
    """Launch a KernelSpec as it is configured."""
    options = {"num_warps": spec.num_warps, "num_stages": spec.num_stages}
    spec.function[grid](**arguments, **spec.constants, **options)


def spaces(plan: Launches, sizes: Mapping[str, int], device: torch.device) -> dict[str, Tensor]:
    """The workspaces of a plan by name, full of what must not be read."""
    found = {}
    for space in plan.workspaces:
        dtype = getattr(torch, space.dtype)
        poison = float("nan") if dtype.is_floating_point else -(1 << 30)
        shape = evaluate_all(space.shape, sizes)
        found[space.name] = torch.full(shape, poison, dtype=dtype, device=device)
    return found


Run = Callable[[Any, tuple[int, ...], Mapping[str, Any]], None]
"""Launches a KernelSpec: grid, arguments by name."""


def play(
    plan: Launches,
    tensors: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    run: Run = run_kernel,
) -> None:
    """Run the launches that a step of these sizes has; scratch memory is made if not given."""
    values: dict[str, Any] = dict(tensors)
    if any(space.name not in values for space in plan.workspaces):
        values |= spaces(plan, sizes, next(iter(tensors.values())).device)
    uniform = sizes.get("T") == sizes.get("B")
    skipped = When.MIXED if uniform else When.UNIFORM
    for launch in plan.launches:
        if launch.when != skipped:
            numbers = {
                name: values[value] if name in launch.access else evaluate(value, sizes)
                for name, value in launch.arguments.items()
            }
            run(launch.kernel, evaluate_all(launch.grid, sizes), numbers)


@dataclass(frozen=True, slots=True)
class TritonOps:
    """`torch.ops.vcc` by Triton.

    Args:
        profile: the device that configurations are taken for.
        interpreted: whether Triton's interpreter runs the kernels.
        force_mixed: play T and B as a mixed step even if it is uniform.
        run: launches a kernel.
    """

    profile: DeviceProfile = PROFILES["sm_90"]
    interpreted: bool = True
    force_mixed: bool = False
    run: Run = run_kernel

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
        kv_scale: Tensor | None = None,
    ) -> None:
        tensors = {"q": q, "kv_cache": kv_cache, "out": out, "block_table": block_table}
        tensors |= {"seq_lens": seq_lens, "query_start": query_start, **scales(kv_scale)}
        self._attention("paged_attention", tensors, scale, sliding_window, soft_cap)

    def paged_attention_quant(
        self,
        q: Tensor,
        kv_cache: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        query_start: Tensor,
        out: Tensor,
        out_scale: Tensor,
        scale: float,
        sliding_window: int = 0,
        soft_cap: float = 0.0,
        kv_scale: Tensor | None = None,
    ) -> None:
        tensors = {"q": q, "kv_cache": kv_cache, "out": out, "block_table": block_table}
        tensors |= {"seq_lens": seq_lens, "query_start": query_start, "out_scale": out_scale}
        tensors |= scales(kv_scale)
        self._attention("paged_attention_quant", tensors, scale, sliding_window, soft_cap)

    def _attention(
        self, op: str, tensors: Mapping[str, Tensor], scale: float, window: int, cap: float
    ) -> None:
        q, kv_cache, table = (tensors[name] for name in ("q", "kv_cache", "block_table"))
        given = [name for name in ("q", "kv_cache", "out", "kv_scale") if name in tensors]
        literals: dict[str, Any] = {name: layout(tensors[name]) for name in given}
        literals |= {"scale": scale, "sliding_window": window, "soft_cap": cap}
        facts = Facts(NAMES[q.dtype], self.profile, kv_cache.shape[2], table.shape[1])
        plan = launches(op, literals, facts)
        sizes = {"T": q.shape[0], "B": tensors["seq_lens"].shape[0], "K": kv_cache.shape[1]}
        if self.force_mixed:
            mixed = tuple(item for item in plan.launches if item.when == When.MIXED)
            plan = Launches(tuple(_always(item) for item in mixed))
        play(plan, tensors, sizes, self.run)

    def kv_write(
        self,
        k: Tensor,
        v: Tensor,
        kv_cache: Tensor,
        slot_mapping: Tensor,
        kv_scale: Tensor | None = None,
    ) -> None:
        tensors = {"k": k, "v": v, "kv_cache": kv_cache, **scales(kv_scale)}
        literals = {name: layout(tensor) for name, tensor in tensors.items()}
        facts = Facts(NAMES[k.dtype], self.profile, kv_cache.shape[2], 1)
        sizes = {"T": k.shape[0], "B": k.shape[0], "K": kv_cache.shape[1]}
        plan = launches("kv_write", literals, facts)
        play(plan, {**tensors, "slot_mapping": slot_mapping}, sizes, self.run)

    def rope_kv_write(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor,
        sin: Tensor,
        kv_cache: Tensor,
        slot_mapping: Tensor,
        q_out: Tensor,
        head_dim: int,
        kv_scale: Tensor | None = None,
    ) -> None:
        tensors = {"q": q, "k": k, "v": v, "cos": cos, "sin": sin, "kv_cache": kv_cache}
        tensors |= {"slot_mapping": slot_mapping, "q_out": q_out, **scales(kv_scale)}
        literals: dict[str, Any] = {name: layout(one) for name, one in tensors.items()}
        facts = Facts(NAMES[q.dtype], self.profile, kv_cache.shape[2], 1)
        plan = launches("rope_kv_write", {**literals, "head_dim": head_dim}, facts)
        sizes = {"T": q.shape[0], "B": q.shape[0], "K": kv_cache.shape[1]}
        play(plan, tensors, sizes, self.run)

    def advance(self, tensors: Mapping[str, Tensor], block_size: int) -> None:
        table = tensors["block_table"]
        facts = Facts("float32", self.profile, block_size, table.shape[1])
        play(advance_launches(facts), tensors, {"B": table.shape[0]})

    def sample(self, tensors: Mapping[str, Tensor]) -> Tensor:
        logits = tensors["logits"]
        facts = Facts(NAMES[logits.dtype], self.profile, 16, 1, logits.shape[1])
        token = torch.full((logits.shape[0],), -7, dtype=torch.int32, device=logits.device)
        play(sample_launches(facts), {**tensors, "token": token}, {"B": logits.shape[0]})
        return token

    def rms_norm(self, *arguments: Any) -> Tensor:
        return wrapped.rms_norm(*arguments, through=self._through)

    def fused_add_rms_norm(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        return wrapped.fused_add_rms_norm(*arguments, through=self._through)

    def silu_and_mul(self, x: Tensor) -> Tensor:
        return wrapped.silu_and_mul(x, through=self._through)

    def rotary_embedding(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        return wrapped.rotary_embedding(*arguments, through=self._through)

    def linear(self, a: Tensor, w: Tensor, c: Tensor | None, variant: Any) -> Tensor:
        return run_linear(variant, a, w, c)

    def _through(self, function: Any) -> Any:
        return function if self.interpreted else torch.library.wrap_triton(function)


def run_linear(
    variant: Any,
    a: Tensor,
    w: Tensor,
    c: Tensor | None,
    d: Tensor | None = None,
    partials: Tensor | None = None,
) -> Tensor:
    """The product by one variant of the registry, as the player launches it."""
    (rows, k), n, parts = a.shape, w.shape[0], variant.split_k
    if d is None:
        d = torch.full((rows, n), float("nan"), dtype=a.dtype, device=a.device)
    if partials is None:
        partials = torch.full((parts, rows, n), float("nan"), device=a.device)
    added = d if c is None else c
    pointers = {"a": a, "w": w, "c": added, "d": d, "partials": partials}
    grid = (-(-n // variant.tile_n), -(-rows // variant.tile_rows), parts)
    run_kernel(variant.kernel, grid, {**pointers, "rows": rows, "n": n, "k": k})
    if variant.reduce is not None:
        pointers = {"partials": partials, "c": added, "d": d}
        run_kernel(variant.reduce, (-(-n // 1024), rows, 1), {**pointers, "rows": rows, "n": n})
    return d


def layout(tensor: Tensor) -> TensorLayout:
    fp8 = "float8_e4m3fn" if tensor.dtype == torch.float8_e4m3fn else ""
    return TensorLayout(tuple(tensor.shape), tuple(tensor.stride()), fp8)


def scales(kv_scale: Tensor | None) -> dict[str, Tensor]:
    """The argument of an fp8 cache's scales, if it is given."""
    return {} if kv_scale is None else {"kv_scale": kv_scale}


def _always(launch: Any) -> Any:
    from dataclasses import replace

    return replace(launch, when=When.ALWAYS)
