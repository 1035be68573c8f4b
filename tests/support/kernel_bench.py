"""The parts of bench_kernels: candidates, shapes, times, and what they are compared with."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from support.kernel_bench_inputs import (
    FLUSH,
    gathered,
    next_product,
    prepared,
    sampling_inputs,
)
from support.kernel_bench_shapes import (
    DECODE_CANDIDATES,
    DECODE_SHAPES,
    LINEAR_ROWS,
    LINEAR_SHAPES,
    PREFILL_CANDIDATES,
    PREFILL_SHAPES,
    linear_candidates,
)
from support.kernel_bench_specs import PROFILE, choose
from support.paged import Heads, PagedBatch, paged_batch
from support.triton_ops import TritonOps, play, run_linear, spaces
from vcc.engine.ops import native_torch
from vcc.engine.ops.triton import registry
from vcc.engine.ops.triton.gemm import GemmVariant, linear_spec, reduce_spec
from vcc.engine.ops.triton.linear_configs import Tile, splits_for, tiles_for


class Bench:
    """Times on one device, or a dry run of everything but the times."""

    def __init__(self, *, dry: bool, until: float) -> None:
        self.dry, self.until, self.start = dry, until, time.monotonic()
        self.device = "cpu" if dry else "cuda"
        self.dtype = torch.float32 if dry else torch.bfloat16
        self.failures: list[str] = []
        self.like = torch.empty(0, dtype=self.dtype, device=self.device)

    def about(self) -> dict[str, Any]:
        """The machine, and the bandwidth of a large copy in GB/s."""
        import triton

        found: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__}
        if not self.dry:
            found["device"] = torch.cuda.get_device_name()
            big = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
            into = torch.empty_like(big)
            found["copy_gb_s"] = round(2 * (1 << 30) / self.us(lambda: into.copy_(big)) / 1e3)
        return found

    def part(self, name: str) -> Any:
        """One part by name; a failure is a result."""
        try:
            return list(getattr(self, name)())
        except Exception as error:  # one part must not cost the others
            self.failures.append(name)
            return f"{type(error).__name__}: {str(error)[-2000:]}"

    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def us(self, call: Callable[[], Any], times: int = 10) -> float:
        """Median microseconds."""
        call()
        if self.dry:
            return 1.0
        begins, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(times)] for _ in "ab")
        for begin, end in zip(begins, ends, strict=True):
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        spans = sorted(b.elapsed_time(e) for b, e in zip(begins, ends, strict=True))
        return 1e3 * spans[len(spans) // 2]

    def graph_us(self, call: Callable[[], Any], repeats: int = 20) -> float:
        """Microseconds of one call inside a CUDA graph of several, launch cost of the host gone."""
        call()
        if self.dry:
            return 1.0
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeats):
                call()
        return self.us(graph.replay, times=5) / repeats

    def close(self, got: Tensor, want: Tensor, what: str) -> float:
        """Largest error as a share of the largest value; a large one is a failure."""
        error = float((got.float() - want.float()).abs().max() / want.float().abs().max())
        if not error < (1e-4 if self.dry else 3e-2):
            self.failures.append(f"{what}: error {error}")
        return error

    def late(self) -> bool:
        """Whether no further shape is to be started."""
        return time.monotonic() > self.until

    def linear(self) -> Iterator[dict[str, Any]]:
        """Each shape and number of rows: cuBLAS, the table's choice, and the best candidate."""
        shapes = ((128, 256),) if self.dry else LINEAR_SHAPES
        for (n, k), rows in itertools.product(shapes, (1, 40) if self.dry else LINEAR_ROWS):
            if self.late():
                return
            a = torch.randn(rows, k, device=self.device).to(self.dtype)
            # Copies enough that none is left in the L2 cache when its turn comes again.
            copies = 1 if self.dry else max(1, min(8, -(-FLUSH // (2 * n * k))))
            w = (torch.randn(copies, n, k, device=self.device) / k**0.5).to(self.dtype)
            want, index = a @ w[0].T, itertools.count()
            peer = self.linear_us(partial(next_product, a, w, index), rows)
            times: dict[str, float] = {}
            tiles = tiles_for(PROFILE, "bfloat16", n)
            chosen = next(t for t in tiles if t.max_rows == 0 or t.max_rows >= rows)
            own = (chosen, splits_for(chosen, n, k, PROFILE))
            for tile, parts in (own, *linear_candidates(rows, n, k)):
                label = f"{tile.tile_rows}x{tile.tile_n}x{tile.tile_k}"
                label += f" w{tile.warps} s{tile.stages} k{parts}"
                label += " narrow" if tile.narrow else ""
                if label not in times:
                    times[label] = self.candidate(tile, parts, a, w, want)
                first = next(iter(times))
            best = min(times, key=lambda name: times[name])
            yield {
                "n": n, "k": k, "rows": rows, "cublas_us": round(peer, 2),
                "table": first, "table_us": round(times[first], 2),
                "best": best, "best_us": round(times[best], 2),
                "of_peer": round(peer / times[best], 3),
                "gb_s": round(2 * n * k / times[best] / 1e3),
                "tflops": round(2 * rows * n * k / times[best] / 1e6),
                "top": dict(sorted(times.items(), key=lambda item: item[1])[:4]),
            }  # fmt: skip

    def linear_us(self, call: Callable[[], Any], rows: int) -> float:
        return self.graph_us(call, 16 if rows <= 128 else 4)

    def candidate(self, tile: Tile, parts: int, a: Tensor, w: Tensor, want: Tensor) -> float:
        """Microseconds of one tile; infinite when it does not run."""
        name = str(a.dtype).removeprefix("torch.")
        reduce = reduce_spec(name, parts, False, aligned=True) if parts > 1 else None
        kernel = linear_spec(name, tile, False, parts > 1, aligned=True)
        variant = GemmVariant(
            0, 0, name, False, 0, kernel, tile.tile_rows, tile.tile_n, parts, reduce
        )
        index = itertools.count()
        out = torch.empty(a.shape[0], w.shape[1], dtype=a.dtype, device=a.device)
        partials = torch.empty(parts, a.shape[0], w.shape[1], device=a.device)
        try:
            self.close(run_linear(variant, a, w[0], None), want, f"linear {tile}")
            return self.linear_us(
                lambda: run_linear(variant, a, w[next(index) % len(w)], None, out, partials),
                a.shape[0],
            )
        except Exception as error:
            self.failures.append(f"linear {tile}: {str(error)[-200:]}")
            return float("inf")

    def prefill(self) -> Iterator[dict[str, Any]]:
        """Prompts of one length: TFLOP/s beside torch's fused attention."""
        for heads, length, count in ((Heads(4, 2, 64), 40, 1),) if self.dry else PREFILL_SHAPES:
            batch = self.batch(heads, [(length, length)] * count)
            flops = 2 * count * length * length * heads.dim * heads.query
            peer, want = self.torch_prefill(batch, heads, length, count)
            times = {}
            for config in PREFILL_CANDIDATES:
                with choose("prefill_config", config):
                    times[str(config)] = self.attention(batch, want, str(config), 4)
            yield self.summary(heads, {"length": length, "count": count}, times, peer, flops=flops)

    def decode(self) -> Iterator[dict[str, Any]]:
        """One row a sequence: GB/s of keys and values."""
        for heads, length, count in ((Heads(4, 2, 64), 40, 2),) if self.dry else DECODE_SHAPES:
            batch = self.batch(heads, [(length, 1)] * count)
            bytes_read = 4 * count * length * heads.key * heads.dim
            want = batch.run(native_torch.paged_attention) if self.dry else None
            times = {}
            for config in DECODE_CANDIDATES:
                with choose("decode_config", config):
                    times[str(config)] = self.attention(batch, want, str(config), 32)
            peer = None if self.dry else self.torch_decode(heads, length, count)
            yield self.summary(
                heads, {"length": length, "count": count}, times, peer, bytes_read=bytes_read
            )

    def batch(self, heads: Heads, sequences: list[tuple[int, int]]) -> PagedBatch:
        made = paged_batch(heads, sequences, self.dtype)
        tensors = (made.q, made.kv_cache, made.block_table, made.seq_lens, made.query_start)
        return PagedBatch(*(tensor.to(self.device) for tensor in tensors), made.rows)

    def attention(self, batch: PagedBatch, want: Tensor | None, label: str, repeats: int) -> float:
        ops = TritonOps(PROFILE, interpreted=self.dry)
        try:
            if want is not None:
                self.close(batch.run(ops.paged_attention), want, label)
            return self.graph_us(prepared(batch), repeats)
        except Exception as error:
            if type(error).__name__ != "OutOfResources":
                self.failures.append(f"{label}: {str(error)[-200:]}")
            return float("inf")

    def torch_prefill(
        self, batch: PagedBatch, heads: Heads, length: int, count: int
    ) -> tuple[float, Tensor]:
        if self.dry:
            return 1.0, batch.run(native_torch.paged_attention)
        keys = gathered(batch, length, count)
        q = batch.q.reshape(count, length, heads.query, heads.dim).transpose(1, 2)
        call = lambda: torch.nn.functional.scaled_dot_product_attention(  # noqa: E731
            q, keys[0], keys[1], is_causal=True, enable_gqa=True
        )
        want = call().transpose(1, 2).reshape(count * length, -1)
        return self.graph_us(call, 4), want

    def torch_decode(self, heads: Heads, length: int, count: int) -> float:
        q = torch.randn(count, heads.query, 1, heads.dim, device=self.device).to(self.dtype)
        keys = torch.randn(2, count, heads.key, length, heads.dim, device=self.device).to(
            self.dtype
        )
        return self.graph_us(
            lambda: torch.nn.functional.scaled_dot_product_attention(
                q, keys[0], keys[1], enable_gqa=True
            )
        )

    def summary(
        self, heads: Heads, shape: dict[str, int], times: dict[str, float], peer: float | None,
        *, flops: int = 0, bytes_read: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        best = min(times, key=lambda name: times[name])
        found = {
            "heads": str(heads),
            **shape,
            "best": best,
            "best_us": round(times[best], 1),
            "torch_us": peer,
        }
        found |= {
            "tflops": round(flops / times[best] / 1e6),
            "gb_s": round(bytes_read / times[best] / 1e3),
        }
        return found | {"all": {name: round(value, 1) for name, value in times.items()}}

    def sample(self) -> Iterator[dict[str, Any]]:
        """Greedy and filtered rows, and the advance kernel, in a graph."""
        for vocab, rows in ((3000, 2),) if self.dry else ((128256, 1), (128256, 64), (32000, 1)):
            for spread, (heat, p, k) in itertools.product(
                (0.5, 4.0), ((0.0, 1.0, 0), (1.0, 1.0, 0), (0.7, 0.9, 0), (0.7, 0.9, 40))
            ):
                given = sampling_inputs(vocab, rows, spread, heat, p, k, self.like)
                plan = registry.sample_launches(
                    registry.Facts(str(self.dtype).removeprefix("torch."), PROFILE, 16, 1, vocab)
                )
                given |= spaces(plan, {"B": rows}, torch.device(self.device))
                peer = partial(torch.argmax, given["logits"], -1)
                call = partial(play, plan, given, {"B": rows})
                yield {"vocab": vocab, "rows": rows, "spread": spread, "rule": (heat, p, k),
                       "us": round(self.graph_us(call), 2),
                       "argmax_us": round(self.graph_us(peer), 2)}  # fmt: skip
