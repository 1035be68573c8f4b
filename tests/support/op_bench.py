"""What bench_ops.py times: a call of each fused operator at a size, and the bytes it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from support.cuda_cases import WRITTEN, Case
from support.host_kernels import layout
from vcc.engine.ops.cuda.table import cuda_call

HEADS = (32, 8, 128)
"""Query heads, key heads and values of a head of the 8B shape."""


@dataclass(frozen=True)
class Timed:
    """A case with the bytes that one call reads and writes, each once."""

    case: Case
    bytes: int


def shapes(tokens: int, hidden: int, inner: int, device: str) -> Iterator[Timed]:
    """Every fused operator at the 8B shape's widths, in bf16."""

    def made(*size: int) -> Tensor:
        return torch.randn(size, device=device).to(torch.bfloat16)

    x, residual, weight = made(tokens, hidden), made(tokens, hidden), made(hidden)
    eps = {"eps": 1e-6, "weight_offset": 0.0}
    scale = torch.tensor([0.02], device=device)
    norm, added = {"x": x, "weight": weight}, {"x": x, "residual": residual, "weight": weight}
    for op, given in (("rms_norm", norm), ("fused_add_rms_norm", added)):
        yield timed(Case(op, "", given, eps))
        yield timed(Case(f"{op}_quant", "static", {**given, "scale": scale}, eps))
        for size, name in ((0, "row"), (128, "block")):
            more = eps | {"block_size": size, "least": 1e-9}
            yield timed(Case(f"{op}_quant_dynamic", name, given, more))
    gate = {"x": made(tokens, 2 * inner)}
    yield timed(Case("silu_and_mul", "", gate))
    yield timed(Case("silu_and_mul_quant", "static", {**gate, "scale": scale}))
    yield timed(Case("silu_and_mul_quant_dynamic", "row", gate, {"block_size": 0, "least": 1e-9}))
    yield timed(
        Case("silu_and_mul_quant_dynamic", "block", gate, {"block_size": 128, "least": 0.0})
    )
    yield timed(Case("gelu_and_mul", "tanh", gate, {"tanh": True}))
    yield timed(Case("gelu_and_mul", "erf", gate, {"tanh": False}))
    yield from _heads(tokens, made, device)


def _heads(tokens: int, made: Callable[..., Tensor], device: str) -> Iterator[Timed]:
    query, keys, dim = HEADS
    q, k, v = made(tokens, query * dim), made(tokens, keys * dim), made(tokens, keys * dim)
    angles = torch.rand(tokens, dim // 2, device=device) * 6.3
    turn = {"cos": angles.cos(), "sin": angles.sin()}
    yield timed(Case("rotary_embedding", "", {"q": q, "k": k, **turn}, {"head_dim": dim}))
    weights = {"q_weight": made(dim), "k_weight": made(dim)}
    numbers = {"head_dim": dim, "eps": 1e-6, "weight_offset": 0.0}
    yield timed(Case("qk_norm_rope", "", {"q": q, "k": k, **weights, **turn}, numbers))
    cache = made(2, -(-tokens // 16), 16, keys, dim)
    slots = torch.randperm(tokens, device=device).to(torch.int32)
    written = {"kv_cache": cache, "slot_mapping": slots}
    yield timed(Case("kv_write", "", {"k": k, "v": v, **written}))
    out = {"q_out": made(tokens, query * dim)}
    given = {"q": q, "k": k, "v": v, **turn, **written, **out}
    yield timed(Case("rope_kv_write", "", given, {"head_dim": dim}))


def timed(case: Case) -> Timed:
    """A case with its bytes: of a cache what is written, and of everything else all of it."""
    read = sum(size(one) for name, one in case.tensors.items() if name not in WRITTEN)
    tensors = {name: layout(one) for name, one in case.tensors.items()}
    results = cuda_call(case.op, tensors, case.numbers).results
    written = sum(_result_bytes(one.shape, one.dtype) for one in results)
    if "q_out" in case.tensors:
        written += size(case.tensors["q_out"])
    if "kv_cache" in case.tensors:
        written += size(case.tensors["k"]) + size(case.tensors["v"])
    return Timed(case, read + written)


def size(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def _result_bytes(shape: tuple[Any, ...], dtype: str) -> int:
    return int(torch.Size(shape).numel()) * getattr(torch, dtype).itemsize


def copies(case: Case, count: int) -> list[Mapping[str, Tensor]]:
    """So many calls' arguments in memory of their own, so that none is left in the L2 cache."""
    return [{name: one.clone() for name, one in case.tensors.items()} for _ in range(count)]


def copy_microseconds(total: int, count: int) -> float:
    """Of a copy that reads and writes `total` bytes; the faster of torch's two ways."""
    half = torch.zeros(count, total // 16, dtype=torch.int64, device="cuda")
    into = torch.empty_like(half)
    ways = (
        [partial(into[i].copy_, half[i]) for i in range(count)],
        [partial(torch.bitwise_not, half[i], out=into[i]) for i in range(count)],
    )
    return min(microseconds(calls) for calls in ways)


ROUNDS, REPLAYS = 5, 4
"""Of a graph, whose time is the median of the rounds."""


class Calls:
    """A CUDA graph of calls, each of which writes to a place of its own."""

    def __init__(self, calls: list[Callable[[], Any]]) -> None:
        for call in calls:
            call()
        torch.cuda.synchronize()
        self.graph, self.count = torch.cuda.CUDAGraph(), len(calls)
        with torch.cuda.graph(self.graph):
            # Else all calls would write into one place, in the cache.
            self.kept = [call() for call in calls]
        self.graph.replay()

    def span(self) -> float:
        """Microseconds of one call in a round."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPLAYS):
            self.graph.replay()
        end.record()
        end.synchronize()
        return float(1e3 * begin.elapsed_time(end) / REPLAYS / self.count)


def microseconds(calls: list[Callable[[], Any]], rounds: int = ROUNDS) -> float:
    """Of one call, replayed from a CUDA graph of all of them; the median of the rounds."""
    made = Calls(calls)
    return median([made.span() for _ in range(rounds)])


def median(spans: list[float]) -> float:
    """Of an odd number of them the one in the middle."""
    return sorted(spans)[len(spans) // 2]
