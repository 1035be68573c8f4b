"""Calls of the operators of `csrc/kernels`: random inputs, and what plain torch gives for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vcc.engine.ops import native_experts, native_fused, native_torch

NATIVE: Mapping[str, Callable[..., Any]] = dict(
    [
        *native_torch.IMPLEMENTATIONS,
        *native_fused.IMPLEMENTATIONS,
        ("topk_softmax", native_experts.topk_softmax),
    ]
)
WRITTEN = ("kv_cache", "q_out", "out")
"""Arguments that operators change in place."""


@dataclass(frozen=True)
class Case:
    """One call: tensors and numbers by argument name."""

    op: str
    name: str
    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: str) -> Case:
        """The same call elsewhere, with the same strides."""
        moved = {name: _moved(one, device) for name, one in self.tensors.items()}
        return Case(self.op, self.name, moved, self.numbers)

    def wanted(self, *, wide: bool = False) -> tuple[Tensor, ...]:
        """What plain torch gives; then what it writes in place. `wide` computes in fp32."""
        given = {n: _wide(t) if wide else t.clone() for n, t in self.tensors.items()}
        found = NATIVE[self.op](**given, **self.numbers)
        results = () if found is None else found if isinstance(found, tuple) else (found,)
        return (*results, *(given[n] for n in WRITTEN if n in given))


def results(function: Callable[..., Any], case: Case) -> tuple[Tensor, ...]:
    """What a call gives; then what it wrote in place."""
    tensors = {n: one.clone() if n in WRITTEN else one for n, one in case.tensors.items()}
    found = function(**tensors, **case.numbers)
    found = () if found is None else found if isinstance(found, tuple) else (found,)
    return (*found, *(tensors[name] for name in WRITTEN if name in tensors))


def _wide(tensor: Tensor) -> Tensor:
    """In fp32; what a cache holds in fp8 stays so."""
    fp8 = tensor.dtype == torch.float8_e4m3fn
    return tensor.float() if tensor.is_floating_point() and not fp8 else tensor.clone()


def _moved(tensor: Tensor, device: str) -> Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return made.copy_(tensor)


def rows(shape: tuple[int, ...], dtype: torch.dtype, gap: int = 0, shift: int = 0) -> Tensor:
    """Random rows with `gap` values between them, the first one `shift` values into its memory."""
    *outer, width = shape
    count = int(torch.tensor(outer).prod()) if outer else 1
    memory = torch.randn(shift + count * (width + gap)).to(dtype)[shift:]
    return memory.view(*outer, width + gap)[..., :width]


LAYOUTS: tuple[tuple[int, int], ...] = ((0, 0), (16, 0), (3, 0), (0, 1))
"""Gap between rows and shift of the first: dense, strided and aligned, and two that are not."""

WIDTHS = (8, 100, 128, 1024, 16384)
LARGE = 4096
"""Rows from here on are tried dense, and without any alignment, only."""

NORMS = ("rms_norm", "fused_add_rms_norm")


def layouts_of(width: int) -> tuple[tuple[int, int], ...]:
    """The layouts that rows of a width are tried in."""
    return LAYOUTS if width < LARGE else (LAYOUTS[0], LAYOUTS[2])


def norm_cases(
    dtype: torch.dtype, widths: tuple[int, ...] = WIDTHS, tokens: int = 3
) -> Iterator[Case]:
    """Norms alone and quantised, of all widths and layouts."""
    for width in widths:
        for gap, shift in layouts_of(width):
            x, residual = (rows((tokens, width), dtype, gap, shift) for _ in range(2))
            weight = (1 + 0.3 * torch.randn(width)).to(dtype)
            numbers = {"eps": 1e-5, "weight_offset": float(width % 3 == 0)}
            name = f"{width} gap {gap} shift {shift}"
            scale = torch.tensor([0.013])
            for norm in NORMS:
                given = {"x": x, **({"residual": residual} if norm != NORMS[0] else {})}
                given["weight"] = weight
                yield Case(norm, name, given, numbers)
                yield Case(f"{norm}_quant", name, {**given, "scale": scale}, numbers)
                for size in (0, *((128,) if width % 128 == 0 else ())):
                    more = numbers | {"block_size": size, "least": 1e-9}
                    yield Case(f"{norm}_quant_dynamic", f"{name} block {size}", given, more)


def gate_cases(
    dtype: torch.dtype, widths: tuple[int, ...] = (8, 100, 256, 1408, 14336), tokens: int = 2
) -> Iterator[Case]:
    """Gated activations alone and quantised."""
    for width in widths:
        for gap, shift in layouts_of(width):
            x = {"x": rows((tokens, 2 * width), dtype, gap, shift)}
            name, scale = f"{width} gap {gap} shift {shift}", torch.tensor([0.017])
            for op, forms in (("silu_and_mul", ({},)), ("gelu_and_mul", GELU)):
                for form in forms:
                    yield Case(op, f"{name} {form}", x, form)
                    yield Case(f"{op}_quant", f"{name} {form}", {**x, "scale": scale}, form)
                    for size in (0, *((128,) if width % 128 == 0 else ())):
                        more = form | {"block_size": size, "least": 1e-9}
                        yield Case(f"{op}_quant_dynamic", f"{name} {more}", x, more)


GELU: tuple[dict[str, Any], ...] = ({"tanh": False}, {"tanh": True})

HEADS: tuple[tuple[int, int, int, int], ...] = (
    (4, 2, 64, 32),
    (3, 1, 16, 8),
    (2, 2, 80, 20),
    (2, 1, 80, 10),
    (8, 2, 128, 64),
    (5, 1, 256, 32),
    (1, 1, 20, 7),
)
"""Query heads, key heads, values of a head, and half of the values that turn."""


def rope_cases(
    dtype: torch.dtype, heads: tuple[tuple[int, int, int, int], ...] = HEADS, tokens: int = 4
) -> Iterator[Case]:
    """Rotary embedding alone, after the heads' norm, and into the cache; partial and full."""
    for query, keys, dim, half in heads:
        for gap, shift in LAYOUTS:
            q = rows((tokens, query * dim), dtype, gap, shift)
            k, v = (rows((tokens, keys * dim), dtype, gap, shift) for _ in range(2))
            angles = torch.rand(tokens, half) * 6.3
            turn = {"cos": angles.cos(), "sin": angles.sin()}
            name = f"{query}+{keys} heads of {dim}, {half} pairs, gap {gap} shift {shift}"
            yield Case("rotary_embedding", name, {"q": q, "k": k, **turn}, {"head_dim": dim})
            weights = {n: (1 + 0.3 * torch.randn(dim)).to(dtype) for n in ("q_weight", "k_weight")}
            more = {"head_dim": dim, "eps": 1e-6, "weight_offset": 0.0}
            yield Case("qk_norm_rope", name, {"q": q, "k": k, **weights, **turn}, more)
            cache = torch.randn(2, 3, 4, keys, dim).to(dtype)
            slots = torch.tensor([7, -1, 0, 11], dtype=torch.int32)[:tokens]
            written = {"kv_cache": cache, "slot_mapping": slots}
            yield Case("kv_write", name, {"k": k, "v": v, **written})
            out = {"q_out": torch.zeros(tokens, query * dim, dtype=dtype)}
            yield Case(
                "rope_kv_write",
                name,
                {"q": q, "k": k, "v": v, **turn, **written, **out},
                {"head_dim": dim},
            )


def cache_cases(
    dtype: torch.dtype, heads: tuple[tuple[int, int, int, int], ...] = HEADS, tokens: int = 4
) -> Iterator[Case]:
    """Both ways into a cache in fp8: scales and none, values beyond the largest, NaN."""
    for query, keys, dim, half in heads:
        for gap, shift in LAYOUTS:
            q = rows((tokens, query * dim), dtype, gap, shift)
            k, v = (rows((tokens, keys * dim), dtype, gap, shift) for _ in range(2))
            v[0] *= 1e4 if dtype != torch.float16 else 600.0
            v[2, 3] = float("nan")
            angles = torch.rand(tokens, half) * 6.3
            turn = {"cos": angles.cos(), "sin": angles.sin()}
            cache = torch.randn(2, 3, 4, keys, dim).to(torch.float8_e4m3fn)
            slots = torch.tensor([7, -1, 0, 11], dtype=torch.int32)[:tokens]
            written = {"kv_cache": cache, "slot_mapping": slots}
            out = {"q_out": torch.zeros(tokens, query * dim, dtype=dtype)}
            for scale in ({}, {"kv_scale": torch.tensor([0.031, 1.7])}):
                name = f"{query}+{keys} heads of {dim}, {half}, gap {gap} shift {shift}, {scale}"
                yield Case("kv_write", name, {"k": k, "v": v, **written, **scale})
                given = {"q": q, "k": k, "v": v, **turn, **written, **out, **scale}
                yield Case("rope_kv_write", name, given, {"head_dim": dim})


def many_cases(dtype: torch.dtype, tokens: int = 129) -> Iterator[Case]:
    """More rows than are few: a thread has more of a gate's row, a block all heads of a token."""
    x, scale = {"x": rows((tokens, 2048), dtype)}, torch.tensor([0.017])
    yield Case("silu_and_mul", "many", x)
    yield Case("silu_and_mul_quant", "many", {**x, "scale": scale})
    yield Case("gelu_and_mul_quant_dynamic", "many", x, GELU[0] | {"block_size": 128, "least": 0.0})
    query, keys, dim = 8, 2, 128
    q = rows((tokens, query * dim), dtype)
    k, v = (rows((tokens, keys * dim), dtype) for _ in range(2))
    angles = torch.rand(tokens, dim // 2) * 6.3
    turn, number = {"cos": angles.cos(), "sin": angles.sin()}, {"head_dim": dim}
    yield Case("rotary_embedding", "many", {"q": q, "k": k, **turn}, number)
    weights = {name: (1 + 0.3 * torch.randn(dim)).to(dtype) for name in ("q_weight", "k_weight")}
    more = number | {"eps": 1e-6, "weight_offset": 0.0}
    yield Case("qk_norm_rope", "many", {"q": q, "k": k, **weights, **turn}, more)
    cache = torch.randn(2, tokens // 4 + 1, 4, keys, dim).to(dtype)
    slots = torch.randperm(tokens).to(torch.int32)
    written = {"kv_cache": cache, "slot_mapping": slots}
    out = {"q_out": torch.zeros(tokens, query * dim, dtype=dtype)}
    given = {"q": q, "k": k, "v": v, **turn, **written, **out}
    yield Case("rope_kv_write", "many", given, number)


FIRST = {torch.bfloat16: 0x3D80, torch.float16: 0x3800}
"""Bits of a number whose 512 successors are below 1, so that none of their sigmoids are equal."""


def distinct(count: int, dtype: torch.dtype) -> Tensor:
    """So many different numbers of a type, in any order."""
    order = torch.randperm(count)
    if dtype == torch.float32:
        return order / count * 6 - 2
    return (FIRST[dtype] + order).to(torch.int16).view(dtype)


def router_cases(dtype: torch.dtype, tokens: int = 5) -> Iterator[Case]:
    """Routers, with logits that are all different."""
    for experts, top_k in ((8, 2), (60, 4), (128, 8), (512, 10), (3, 3)):
        for gap in (0, 3):
            logits = torch.stack([distinct(experts, dtype) for _ in range(tokens)])
            memory = torch.zeros(tokens, experts + gap, dtype=dtype)
            memory[:, :experts] = logits
            for op in ("topk_softmax", "topk_sigmoid"):
                for renormalise in (False, True):
                    yield Case(
                        op,
                        f"{top_k} of {experts} gap {gap} {renormalise}",
                        {"logits": memory[:, :experts]},
                        {"top_k": top_k, "renormalise": renormalise},
                    )


def nan_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Each family with NaN, infinities and zeros in single rows; the others must not notice."""
    families = (
        *norm_cases(dtype, (256, 100)),
        *gate_cases(dtype, (256, 100)),
        *rope_cases(dtype, ((4, 2, 64, 32),)),
    )
    for case in families:
        tensors = dict(case.tensors)
        name = "x" if "x" in tensors else "k"
        odd = tensors[name].clone()
        odd[0, 5], odd[1] = float("nan"), 0.0
        tensors[name] = odd
        yield Case(case.op, f"{case.name} NaN", tensors, case.numbers)


FAMILIES: tuple[Callable[[torch.dtype], Iterator[Case]], ...] = (
    *(norm_cases, gate_cases, rope_cases, many_cases),
    *(cache_cases, router_cases),
)
"""Together every operator with a CUDA kernel, in all its layouts."""


def all_cases(dtype: torch.dtype) -> Iterator[Case]:
    """The cases of all families."""
    for family in FAMILIES:
        yield from family(dtype)
