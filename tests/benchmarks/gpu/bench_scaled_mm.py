"""fp8 products of an 8B decoder, ours in Triton and of the GEMM store beside torch._scaled_mm.

    python bench_scaled_mm.py [--tokens 1 8 64 256 1024 2048] [--dry]

Scales are of tensors, by row and by channel, one for all activations and by channel (torch is given
that one for each row), and by block where torch has that product. cuBLASLt's kernels are recorded
first, as by `vcc tune`, and timed in the same process; vcc takes the faster way. Weights rotate
so that none is in the L2 cache; results are held against one another before anything is timed.
`--dry` says what would be timed. Writes gpu-scaled_mm.json; one is the limit of every ratio of what
vcc takes.
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
from stored_products import Stored, replay

from vcc.engine.graphs.table.layout import FP8
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.storable import recorded_rows

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

FORMS = ("tensor", "channel", "channel, fast sums", "static and channel", "block")
STORED_FORMS = {
    "tensor": "tensor",
    "channel": "rows",
    "static and channel": "rows",
    "block": "blocks",
}
"""Forms that the GEMM store has, and how it calls their scales."""

AGREE = 2.0**-6
"""Largest difference of the two results, as a share of the largest value: both round to bf16."""


def main() -> int:
    """Measure; 1 when ours is slower somewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 64, 256, 1024, 2048])
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
        limit = None if "store_us" in one else 1.0
        yield Row(name, round(one["ours_us"] / one["torch_us"], 3), "x", limit, note=note)
        if "store_us" in one:
            yield _with_store(name, one)


def _with_store(name: str, one: dict[str, Any]) -> Row:
    """What vcc takes with the store, over torch's."""
    times = {"Triton": one["ours_us"], "the store": one["store_us"]}
    way, best = min(((w, t) for w, t in times.items() if t is not None), key=lambda each: each[1])
    note = f"{best:.1f} us by {way}; {one['store_why']}".rstrip("; ")
    return Row(f"{name}, with the store", round(best / one["torch_us"], 3), "x", 1.0, note=note)


def measured(sizes: list[int]) -> list[dict[str, Any]]:
    """In a child: both at every size and form."""
    import torch

    torch.manual_seed(0)
    stored = Stored(shapes_of(sizes))
    found = []
    for name, (columns, depth) in SHAPES.items():
        count = max(2, -(-OUT_OF_CACHE // (depth * columns)))
        weights = [_drawn(columns, depth) for _ in range(count)]
        for tokens in sizes:
            for form in FORMS:
                one = _pair(form, _drawn(tokens, depth), weights, stored)
                found.append({"name": name, "tokens": tokens, "form": form, **one})
    return found


def shapes_of(sizes: list[int]) -> list[GemmShape]:
    """The products that the store is asked for."""
    found = (
        _shape(tokens, columns, depth, form)
        for columns, depth in SHAPES.values()
        for tokens in sizes
        for form in STORED_FORMS
        if tokens == recorded_rows(tokens, STORED_FORMS[form])
    )
    return list(dict.fromkeys(found))


def _shape(tokens: int, columns: int, depth: int, form: str) -> GemmShape:
    return GemmShape(tokens, columns, depth, FP8, False, "bfloat16", STORED_FORMS[form])


def _drawn(rows: int, columns: int) -> Any:
    import torch

    return torch.randn(rows, columns, device="cuda").to(torch.float8_e4m3fn)


def _pair(form: str, x: Any, weights: list[Any], stored: Stored) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    from support.op_bench import ROUNDS, Calls, median, microseconds

    from vcc.engine.ops.triton.wrapped_scaled import scaled_linear

    (tokens, depth), columns = x.shape, weights[0].shape[0]
    x_scale, w_scale = _scales(form, tokens, columns, depth)
    ours = partial(
        scaled_linear, x, x_scale=x_scale, w_scale=w_scale, bias=None,
        ranges=[columns] if form == "tensor" else [],
        dtype=torch.bfloat16, through=lambda kernel: kernel,
    )  # fmt: skip

    def theirs(weight: Any) -> Any:
        left, right = x_scale, w_scale
        if form == "block":
            right = w_scale.t()
        elif form != "tensor":
            left, right = x_scale.view(tokens, 1), w_scale[None, :]
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
    calls = Calls([partial(theirs, one) for one in weights])
    told["torch_us"] = median([calls.span() for _ in range(ROUNDS)])
    shape = _shape(tokens, columns, depth, form) if form in STORED_FORMS else None
    if shape is not None and tokens == recorded_rows(tokens, shape.scales):
        told |= _of_store(stored, shape, (x, weights, (x_scale, w_scale)), want, calls)
    return {**told, "difference": difference}


def _scales(form: str, tokens: int, columns: int, depth: int) -> tuple[Any, Any]:
    """Scales of activations, those of blocks by block, and of weights."""
    import torch

    across, down = depth // 128, columns // 128
    sizes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "tensor": ((1,), (1,)),
        "static and channel": ((1,), (columns,)),
        "block": ((across, tokens), (down, across)),
    }
    shapes = sizes.get(form, ((tokens, 1), (columns,)))
    left, right = (torch.rand(shape, device="cuda") + 0.5 for shape in shapes)
    if form == "static and channel":
        left = left.expand(tokens).contiguous()
    return left.t() if form == "block" else left, right


def _of_store(
    stored: Stored, shape: GemmShape, given: tuple[Any, list[Any], Any], want: Any, calls: Any
) -> dict[str, Any]:
    """The store's product over the same tensors, held against torch's result.

    Torch's is timed again, in turns with it.
    """
    import torch

    why = stored.lacking(shape)
    if why:
        return {"store_us": None, "store_why": why}
    theirs, micros, made = replay(stored.entries[shape], *given, torch.bfloat16, calls.span)
    difference = float((made.float() - want).abs().max() / want.abs().max())
    if not difference <= AGREE:
        raise SystemExit(f"{shape}: the store's result differs from torch's by {difference:.3g}")
    told = {"store_us": micros, "store_why": "", "store_difference": difference}
    return {"torch_us": theirs, **told}


if __name__ == "__main__":
    sys.exit(main())
