"""Each operator against the same work in plain torch, in one process: prints ratios, writes JSON.

    python tests/benchmarks/bench_ops.py [--threads N] [--json FILE]

A ratio above 1 means that the operator is faster than its peer. The peers: `F.rms_norm`,
`F.silu * up`, the layer's plain forward for rotary, `index_copy_` for kv_write, and
`F.scaled_dot_product_attention` on keys and values that were gathered before (so the peer does not
pay for paging).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.paged import Heads, PagedBatch, paged_batch

from vcc.engine.ops.layers import RotaryEmbedding
from vcc.engine.ops.register import load_ops

Call = Callable[[], Any]
ROUNDS, ROUND_SECONDS = 15, 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """One operator at one size, and its peer."""

    op: str
    size: str
    ours: Call
    peer: Call


@dataclass(frozen=True, slots=True)
class Row:
    """Best times of a case in microseconds; ratio = peer / ours."""

    op: str
    dtype: str
    size: str
    us: float
    peer_us: float
    ratio: float


def measure(calls: tuple[Call, ...]) -> list[float]:
    """Best seconds a call, the calls taken in turn so that noise hits all of them."""
    repeats = [max(1, int(ROUND_SECONDS / _once(call, 2))) for call in calls]
    times = [
        [_once(call, n) for call, n in zip(calls, repeats, strict=True)] for _ in range(ROUNDS)
    ]
    return [min(column) for column in zip(*times, strict=True)]


def _once(call: Call, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def row_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Norms and activation at one row, and at the size of a prefill."""
    ops = torch.ops.vcc
    for rows, width in ((1, 64), (1, 4096), (512, 512), (512, 4096)):
        x, residual = torch.randn(rows, width).to(dtype), torch.randn(rows, width).to(dtype)
        weight, wide = torch.randn(width).to(dtype), torch.randn(rows, 2 * width).to(dtype)
        size = f"{rows} x {width}"
        yield Case(
            "rms_norm",
            size,
            lambda x=x, w=weight: ops.rms_norm(x, w, 1e-6),
            lambda x=x, w=weight: F.rms_norm(x, w.shape, w, 1e-6),
        )
        yield Case(
            "fused_add_rms_norm",
            size,
            lambda x=x, r=residual, w=weight: ops.fused_add_rms_norm(x, r, w, 1e-6),
            lambda x=x, r=residual, w=weight: F.rms_norm(x + r, w.shape, w, 1e-6),
        )
        yield Case("silu_and_mul", size, lambda x=wide: ops.silu_and_mul(x), _silu_peer(wide))


def _silu_peer(x: Tensor) -> Call:
    gate, up = x.chunk(2, dim=-1)
    return lambda: F.silu(gate) * up


def head_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Rotary and cache writes."""
    ops = torch.ops.vcc
    for rows, heads in ((1, Heads(4, 2, 16)), (1, Heads(32, 8, 128)), (512, Heads(32, 8, 128))):
        q = torch.randn(rows, heads.query * heads.dim).to(dtype)
        k = torch.randn(rows, heads.key * heads.dim).to(dtype)
        cos, sin = torch.randn(rows, heads.dim // 2), torch.randn(rows, heads.dim // 2)
        cache = torch.zeros(2, rows, 16, heads.key, heads.dim, dtype=dtype)
        slots = torch.randperm(16 * rows)[:rows]
        size, plain = (
            f"{rows} x {heads.query}/{heads.key} x {heads.dim}",
            RotaryEmbedding(heads.dim),
        )
        yield Case(
            "rotary_embedding",
            size,
            lambda a=(q, k, cos, sin, heads.dim): ops.rotary_embedding(*a),
            lambda f=plain, a=(q, k, cos, sin): f(*a),
        )
        yield Case("kv_write", size, *_writes(k, cache, slots))


def _writes(k: Tensor, cache: Tensor, slots: Tensor) -> tuple[Call, Call]:
    """Our write of k as keys and as values, and two index_copy_ calls."""
    narrow, (keys, values), op = slots.int(), cache.view(2, -1, k.shape[1]), torch.ops.vcc.kv_write
    return (
        lambda: op(k, k, cache, narrow),
        lambda: (keys.index_copy_(0, slots, k), values.index_copy_(0, slots, k)),
    )


ATTENTION = (
    ("prefill", Heads(8, 8, 64), 1, 512, 512),
    ("prefill", Heads(32, 8, 128), 1, 1024, 1024),
    ("decode", Heads(4, 2, 16), 1, 64, 1),
    ("decode", Heads(8, 8, 64), 8, 512, 1),
    ("decode", Heads(8, 2, 64), 1, 1024, 1),
    ("decode", Heads(32, 8, 128), 4, 4096, 1),
    ("decode", Heads(32, 32, 128), 1, 2048, 1),
)


def attention_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Prefill and decode; sequences of equal length, as the peer needs them."""
    for phase, heads, count, length, rows in ATTENTION:
        batch = paged_batch(heads, [(length, rows)] * count, dtype)
        size = f"{phase} {count} x {rows} of {length}, {heads.query}/{heads.key} x {heads.dim}"
        yield Case("paged_attention", size, _ours(batch), _dense(batch, length, rows, heads))


def _ours(batch: PagedBatch) -> Call:
    out = torch.empty_like(batch.q, memory_format=torch.contiguous_format)
    indices = (batch.block_table, batch.seq_lens, batch.query_start)
    scale, op = batch.kv_cache.shape[-1] ** -0.5, torch.ops.vcc.paged_attention
    return lambda: op(batch.q, batch.kv_cache, *indices, out, scale)


def _dense(batch: PagedBatch, length: int, rows: int, heads: Heads) -> Call:
    blocks = batch.block_table[:, : -(-length // batch.kv_cache.shape[2])].long()
    keys, values = (
        part[blocks].flatten(1, 2)[:, :length].transpose(1, 2).contiguous()
        for part in batch.kv_cache
    )
    q = batch.q.reshape(-1, rows, heads.query, heads.dim).transpose(1, 2)
    options = {"is_causal": rows > 1, "enable_gqa": heads.query != heads.key}
    return lambda: F.scaled_dot_product_attention(q, keys, values, **options)


def run(case: Case, dtype: torch.dtype) -> Row:
    """Measure one case."""
    ours, peer = (1e6 * seconds for seconds in measure((case.ours, case.peer)))
    name = str(dtype).removeprefix("torch.")
    return Row(case.op, name, case.size, round(ours, 2), round(peer, 2), round(peer / ours, 2))


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows, backend = [], load_ops()
    print(f"{backend.reason}; {options.threads} threads; torch {torch.__version__}")
    for dtype in (torch.float32, torch.bfloat16):
        for cases in (row_cases, head_cases, attention_cases):
            for case in cases(dtype):
                row = run(case, dtype)
                rows.append(row)
                times = f"{row.us:10.1f} us {row.peer_us:10.1f} us {row.ratio:7.2f}x"
                print(f"{row.op:20}{row.dtype:10}{row.size:36}{times}", flush=True)
    if options.json is not None:
        facts = {"backend": asdict(backend), "threads": options.threads}
        facts |= {"torch": torch.__version__, "machine": platform.machine()}
        text = json.dumps(facts | {"rows": [asdict(row) for row in rows]}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
