"""A layer of experts of Qwen3-30B-A3B beside torch's grouped products, in one process.

    python bench_experts.py [--tokens 1 8 64 512 2048] [--fp8 8 64 2048] [--tiles 64x64x64] [--dry]

Both sides take rows, weights and ids, and give rows; the sort of the peer belongs to it, as the
tiles of ours do. Times are of one call replayed from a CUDA graph of calls with routings of their
own. Each result is held against fp32 first: an error above 1.25 times the peer's is a missed row.
`--tiles` times other cuts of the products too (rows x columns x depth). Decode steps are beside the
copy bandwidth, which is measured in the same process. `--fp8`: sizes at which weights and rows are
in fp8, beside torch._scaled_grouped_mm; both sides quantise by the same torch functions, whose time
is a row of its own. A peer that is missing or refuses is a row that says so. `--dry` runs both
sides on the CPU at a small size, our kernels by Triton's interpreter in fp32. Writes
gpu-experts.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import Row, measured_apart, publish

ROOT = Path(__file__).resolve().parents[3]
FACTOR = 1.25
CALLS = 8
"""Routings, and calls in a graph."""

SECONDS = 240
"""After this no further size is begun."""


def main() -> int:
    """Measure; 1 when ours is slower than the peer, or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 64, 512, 2048])
    parser.add_argument("--fp8", type=int, nargs="*", default=[8, 64, 2048])
    parser.add_argument("--tiles", nargs="*", default=[])
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"
        print(json.dumps(dry()))
        return 0
    if options.measure:
        told = measured(options.tokens, options.fp8, options.tiles)
        Path(options.measure).write_text(json.dumps(told))
        return 0
    words = ("--tokens", *options.tokens, "--fp8", *options.fp8, "--tiles", *options.tiles)
    found = measured_apart("bench_experts.py", *words)
    what = "a layer of 128 experts, 8 a row, of 2,048 and 768 values, microseconds"
    tables = {"Microseconds of other tiles": found["tiles"]} if found["tiles"] else {}
    return publish("experts", what, list(rows_of(found)), {"tables": tables, "details": found})


PEERS = {"sizes": ("", "grouped_mm"), "fp8": ("fp8 ", "scaled_grouped_mm")}
"""What the rows of a kind of weights begin with, and the function of torch beside it."""


def rows_of(found: dict[str, Any]) -> Iterator[Row]:
    """Time, ratio, share of what the device can, error; of each kind of weights."""
    yield Row("copy bandwidth, bytes read and written", round(found["copy"], 1), "GB/s")
    for kind, (label, peer) in PEERS.items():
        for tokens, one in found[kind].items():
            yield from _rows(f"{label}T={tokens}", peer, one, found["copy"])


def _rows(name: str, peer: str, one: dict[str, Any], copy: float) -> Iterator[Row]:
    yield Row(f"{name}: experts", round(one["ours_us"], 1), "us")
    if one.get("grouped_us") is None:
        yield Row(f"{name}: experts / {peer}", None, "", 1.0, note=one["why"][:100])
    else:
        ratio = one["ours_us"] / one["grouped_us"]
        yield Row(f"{name}: experts / {peer}", round(ratio, 3), "", 1.0)
    if one.get("quantise_us"):
        yield Row(f"{name}: quantising, in both", round(one["quantise_us"], 1), "us")
    share = one["read_bytes"] / one["ours_us"] / 1e3 / copy
    yield Row(f"{name}: weights read / copy bandwidth", round(share, 3))
    yield Row(f"{name}: TFLOP/s", round(one["operations"] / one["ours_us"] / 1e6, 1))
    limit = FACTOR * one["grouped_error"] if one.get("grouped_error") else None
    yield Row(f"{name}: error against fp32", one["ours_error"], "", limit)


def measured(sizes: Sequence[int], fp8: Sequence[int], tiles: Sequence[str]) -> dict[str, Any]:
    """In a child: times of both sides, and of ours by other tiles."""
    sys.path.insert(0, str(ROOT / "tests"))
    from peer_copy import bandwidths
    from support import expert_bench as bench

    until = time.monotonic() + SECONDS
    copy = max(bandwidths().values())
    layer = bench.Layer.drawn("cuda", **bench.SHAPE)
    found: dict[str, Any] = {"copy": copy, "sizes": {}, "fp8": {}, "tiles": {}}
    for tokens in sizes:
        if time.monotonic() > until:
            break
        given = bench.routings(tokens, CALLS, "cuda")
        found["sizes"][str(tokens)] = _size(bench, layer, tokens, given)
        for text in tiles:
            with tiled(text):
                row = found["tiles"].setdefault(text, {})
                row[f"T={tokens}"] = _tried(bench, layer, given)
    scaled = bench.ScaledLayer.of(layer) if fp8 else None
    for tokens in fp8 if time.monotonic() < until else ():
        given = bench.routings(tokens, CALLS, "cuda")
        found["fp8"][str(tokens)] = _scaled_size(bench, scaled, tokens, given)
    return found


def _scaled_size(bench: Any, layer: Any, tokens: int, given: Any) -> dict[str, Any]:
    from support.op_bench import microseconds

    told = _size(bench, layer, tokens, given)
    told["quantise_us"] = microseconds(bench.calls(layer.quantised, given))
    return told | {"read_bytes": bench.bytes_read(given, 1)}


def _size(bench: Any, layer: Any, tokens: int, given: Any) -> dict[str, Any]:
    from support.op_bench import microseconds

    exact = _exact(layer, *given[0])
    told: dict[str, Any] = {
        "ours_error": bench.error(layer.ours(*given[0]), exact),
        "ours_us": microseconds(bench.calls(layer.ours, given)),
        "read_bytes": bench.bytes_read(given),
        "operations": bench.floating_operations(tokens),
    }
    try:
        told["grouped_error"] = bench.error(layer.grouped(*given[0]), exact)
        told["grouped_us"] = microseconds(bench.calls(layer.grouped, given))
    except MISSING as error:
        told["why"] = _why(error)
    return told


MISSING = (RuntimeError, AttributeError, TypeError, ValueError)
"""What a torch or a device raises that has not a peer's function, or not in this form."""


def _why(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _tried(bench: Any, layer: Any, given: Any) -> float | None:
    from support.op_bench import microseconds

    try:
        return round(microseconds(bench.calls(layer.ours, given)), 1)
    except Exception as error:  # a tile that does not fit is a cell without a figure
        print(type(error).__name__, str(error)[:200], file=sys.stderr)
        return None


@contextmanager
def tiled(text: str) -> Iterator[None]:
    """Our kernels with another cut, for 16-bit types."""
    from vcc.engine.ops.triton import wrapped_experts

    kept, tile = wrapped_experts.TILINGS, wrapped_experts.Tile(*map(int, text.split("x")))
    wrapped_experts.TILINGS = {**kept, 2: wrapped_experts.Tiling(tile, tile)}
    try:
        yield
    finally:
        wrapped_experts.TILINGS = kept


def _exact(layer: Any, x: Any, weights: Any, ids: Any) -> Any:
    """In fp32, an expert at a time, so that no copy of all weights is made."""
    import torch

    out = torch.zeros_like(x, dtype=torch.float32)
    for expert in ids.unique().tolist():
        rows, choices = torch.where(ids == expert)
        gate_up, down = layer.wide(expert)
        gate, up = (x[rows].float() @ gate_up.T).chunk(2, -1)
        each = (torch.nn.functional.silu(gate) * up) @ down.T
        out.index_add_(0, rows, each * weights[rows, choices, None])
    return out


def dry() -> dict[str, Any]:
    """Errors of both sides at a small size on the CPU; the peer's in bf16, as it has no other.

    fp8 has an error beside that of plain torch for the same steps, and what its peer says here.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from support import expert_bench as bench

    from vcc.engine.ops.native_scaled_experts import scaled_experts

    bench.SHAPE.update(experts=8, top_k=2, hidden=64, width=32)
    layer = bench.Layer.drawn("cpu", **bench.SHAPE)
    wide = bench.Layer(layer.gate_up.float(), layer.down.float())
    ((x, weights, ids),) = bench.routings(9, 1, "cpu")
    exact = _exact(layer, x, weights, ids)
    ours = bench.error(wide.ours(x.float(), weights, ids), exact)
    scaled = bench.ScaledLayer.of(layer)
    given = (x.float(), weights, ids)
    kept = (scaled.gate_up, scaled.down, scaled.gate_up_scale, scaled.down_scale, None, None)
    plain = scaled_experts(given[0], *kept, *given[1:], bench.LEAST)
    exact_fp8 = _exact(scaled, *given)
    told = {"ours": ours, "grouped": bench.error(layer.grouped(x, weights, ids), exact)}
    told["fp8"] = bench.error(scaled.ours(*given), exact_fp8)
    told["fp8_plain"] = bench.error(plain, exact_fp8)
    try:
        told["fp8_grouped"] = bench.error(scaled.grouped(x, weights, ids), exact_fp8)
    except MISSING as error:
        told["fp8_grouped"] = _why(error)
    return told


if __name__ == "__main__":
    sys.exit(main())
