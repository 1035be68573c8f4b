"""A norm inside the projection that reads it, beside a norm and torch's product, in one process.

    python bench_norm_linear.py [--tokens 1 8 64 512 2048] [--dry]

`rms_norm_linear` is off at every level until it is faster than the two apart; these figures say
where that is. The projections are those of the 8B shape in bf16; weights are rotated, so that none
is in the L2 cache. `--dry` says what would be timed. Writes gpu-norm_linear.json.
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
HIDDEN = 4096
PROJECTIONS = {"qkv": 6144, "gate and up": 28672}
"""Columns of the projections that read a norm."""

OUT_OF_CACHE = 512 << 20
"""Bytes of all copies of a weight."""


def main() -> int:
    """Measure; the figures have no limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 64, 512, 2048])
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        print(json.dumps(list(PROJECTIONS)))
        return 0
    if options.measure:
        Path(options.measure).write_text(json.dumps(measured(options.tokens)))
        return 0
    found = measured_apart("bench_norm_linear.py", "--tokens", *options.tokens)
    what = f"rms_norm_linear beside rms_norm and a product, {HIDDEN} values in bf16"
    return publish("norm_linear", what, list(rows_of(found)), {"details": found})


def rows_of(found: list[dict[str, Any]]) -> Iterator[Row]:
    """Fused over apart; below one the pass is worth having."""
    for one in found:
        ratio = round(one["fused_us"] / one["apart_us"], 3)
        note = f"{one['fused_us']:.1f} against {one['apart_us']:.1f} us"
        yield Row(f"{one['name']} T={one['tokens']}: fused / apart", ratio, note=note)


def measured(sizes: list[int]) -> list[dict[str, Any]]:
    """In a child: both ways at every size."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    from support.op_bench import microseconds
    from torch.nn.functional import linear

    from vcc.engine.ops.register import load_ops
    from vcc.engine.ops.triton import wrapped, wrapped_fused

    load_ops()
    at_once: dict[str, Any] = {"through": lambda kernel: kernel}
    norm = torch.randn(HIDDEN, device="cuda", dtype=torch.bfloat16)
    found = []
    for name, columns in PROJECTIONS.items():
        count = max(2, -(-OUT_OF_CACHE // (2 * HIDDEN * columns)))
        weights = [
            torch.randn(columns, HIDDEN, device="cuda", dtype=torch.bfloat16) / 64
            for _ in range(count)
        ]
        for tokens in sizes:
            x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
            fused = partial(wrapped_fused.rms_norm_linear, x, norm, bias=None, eps=1e-6, **at_once)

            def apart(weight: Any, x: Any = x) -> Any:
                return linear(wrapped.rms_norm(x, norm, 1e-6, **at_once), weight)

            told: dict[str, Any] = {"name": name, "tokens": tokens}
            told["fused_us"] = microseconds([partial(fused, weight=one) for one in weights])
            told["apart_us"] = microseconds([partial(apart, one) for one in weights])
            found.append(told)
    return found


if __name__ == "__main__":
    sys.exit(main())
