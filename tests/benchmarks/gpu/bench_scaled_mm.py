"""fp8 products of an 8B decoder, ours in Triton beside torch._scaled_mm, in one process.

    python bench_scaled_mm.py [--tokens 1 8 64 512 2048] [--dry]

Scales are by row and by channel, and by block where torch has that product. Weights are rotated, so
that none is in the L2 cache, and results are held against one another before anything is timed.
`--dry` says what would be timed. Writes gpu-scaled_mm.json; one is the limit of every ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from common import Row, measured_apart, publish

ROOT = Path(__file__).resolve().parents[3]
SHAPES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate and up": (28672, 4096),
    "down": (4096, 14336),
}
"""Columns and depth of the projections of the 8B shape."""

OUT_OF_CACHE = 512 << 20
"""Bytes of all copies of a weight."""

AGREE = 2.0**-6
"""Largest difference of the two results, as a share of the largest value: both round to bf16."""


def main() -> int:
    """Measure; 1 when ours is slower somewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 64, 512, 2048])
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        print(json.dumps(list(SHAPES)))
        return 0
    if options.measure:
        Path(options.measure).write_text(json.dumps(measured(options.tokens)))
        return 0
    found = measured_apart("bench_scaled_mm.py", "--tokens", *options.tokens)
    what = "fp8 products of the 8B shape: ours over torch._scaled_mm"
    return publish("scaled_mm", what, list(rows_of(found)), {"details": found})


def rows_of(found: list[dict[str, Any]]) -> Iterator[Row]:
    """Ours over torch's, for each form of torch's that ran."""
    for one in found:
        name = f"{one['name']} T={one['tokens']} {one['form']}"
        if one["torch_us"] is None:
            yield Row(name, None, note=one["why"])
            continue
        note = f"{one['ours_us']:.1f} against {one['torch_us']:.1f} us"
        yield Row(name, round(one["ours_us"] / one["torch_us"], 3), "x", 1.0, note=note)


def measured(sizes: list[int]) -> list[dict[str, Any]]:
    """In a child: both at every size and form."""
    import torch

    torch.manual_seed(0)
    found = []
    for name, (columns, depth) in SHAPES.items():
        count = max(2, -(-OUT_OF_CACHE // (depth * columns)))
        weights = [_drawn(columns, depth) for _ in range(count)]
        for tokens in sizes:
            for form in ("channel", "channel, fast sums", "block"):
                one = _pair(form, _drawn(tokens, depth), weights)
                found.append({"name": name, "tokens": tokens, "form": form, **one})
    return found


def _drawn(rows: int, columns: int) -> Any:
    import torch

    return torch.randn(rows, columns, device="cuda").to(torch.float8_e4m3fn)


def _pair(form: str, x: Any, weights: list[Any]) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    from support.op_bench import microseconds

    from vcc.engine.ops.triton.wrapped_scaled import scaled_linear

    blocks = form == "block"
    (tokens, depth), columns = x.shape, weights[0].shape[0]
    across, down = depth // 128, columns // 128
    x_scale = torch.rand(tokens, across if blocks else 1, device="cuda") + 0.5
    w_scale = torch.rand((down, across) if blocks else (columns,), device="cuda") + 0.5
    ours = partial(
        scaled_linear, x, x_scale=x_scale, w_scale=w_scale, bias=None, ranges=[],
        dtype=torch.bfloat16, through=lambda kernel: kernel,
    )  # fmt: skip

    def theirs(weight: Any) -> Any:
        left, right = (x_scale.t().contiguous().t(), w_scale.t()) if blocks else (
            x_scale, w_scale[None, :]
        )  # fmt: skip
        fast = form.endswith("fast sums")
        return torch._scaled_mm(
            x, weight.t(), left, right, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    told: dict[str, Any] = {"ours_us": microseconds([partial(ours, one) for one in weights])}
    try:
        got, want = ours(weights[0]).float(), theirs(weights[0]).float()
    except (RuntimeError, ValueError) as error:  # a form that this torch or device has not
        return {**told, "torch_us": None, "why": str(error).strip().splitlines()[0][:200]}
    difference = float((got - want).abs().max() / want.abs().max())
    if not difference <= AGREE:
        raise SystemExit(f"{form} {tuple(x.shape)}: the results differ by {difference:.3g}")
    told["torch_us"] = microseconds([partial(theirs, one) for one in weights])
    return {**told, "difference": difference}


if __name__ == "__main__":
    sys.exit(main())
