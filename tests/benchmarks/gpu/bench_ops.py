"""Each fused operator beside a copy of as many bytes, and a decode with the ops beside one without.

    python bench_ops.py [--tokens 2048 8192] [--only ops decode] [--ops kv_write ...]
                        [--configs without csrc] [--dry]

Operators: csrc's kernels through `torch.ops.vcc`, and Triton's as pieces have them, at the widths
of the 8B shape in bf16. The peer is torch's copy of as many bytes, read and written, timed in the
same way in the same process: from a CUDA graph, in memory that is not in the L2 cache. Above 8 MB
a kernel must reach 0.90 of it.

Decode: the model compiled with every custom op on, which its fusions need, by csrc and by Triton,
and with none. `--dry` needs no device: it says what would be timed. Writes gpu-ops.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import products
from common import Row, built, model, publish, python, store

ROOT = Path(__file__).resolve().parents[3]
SHARE = 0.90
LARGE = 8 << 20
"""Bytes from which on a kernel is bound by memory, and has a limit."""

OUT_OF_CACHE = 512 << 20
"""Bytes of all copies of a call's arguments: many times the L2 cache."""

HIDDEN, INNER = 4096, 14336
CONFIGS: Mapping[str, str] = {
    "without": '{"custom_ops": ["none"]}',
    "csrc": '{"custom_ops": ["all"]}',
    "triton": json.dumps(
        {
            "custom_ops": [
                f"+{op}:triton"
                for op in ("gelu_tanh_and_mul", "rms_norm", "rotary_embedding", "silu_and_mul")
            ]
        }
    ),
}


def main() -> int:
    """Measure; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[2048, 8192])
    parser.add_argument("--only", nargs="*", default=["ops", "decode"])
    parser.add_argument("--ops", nargs="*", default=[], help="these operators; else all")
    parser.add_argument("--size", default="8b")
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--configs", nargs="*", default=list(CONFIGS), help="of decode")
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure or options.dry:
        return measured(options)
    rows: list[Row] = []
    details: dict[str, Any] = {}
    if "ops" in options.only:
        details["ops"] = operators(options)
        rows += op_rows(details["ops"])
    if "decode" in options.only:
        details["decode"] = {name: decode(name, options) for name in options.configs}
        rows += decode_rows(details["decode"])
    what = (
        f"operators in bf16 at {HIDDEN} and {INNER} values, and decode of a Llama of {options.size}"
    )
    return publish("ops", what, rows, details)


def operators(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The operators' times, measured in a process that ends with its memory."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "ops.json"
        words = ("--tokens", *options.tokens, "--ops", *options.ops)
        python("bench_ops.py", "--measure", out, *words)
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found


def op_rows(found: list[dict[str, Any]]) -> Iterator[Row]:
    """A row for each operator, size and back end: its share of a copy's bandwidth."""
    for one in found:
        name = " ".join(filter(None, (one["op"], one["form"], f"T={one['tokens']}")))
        for backend in ("csrc", "triton"):
            if one.get(backend) is None:
                continue
            share = one["copy_us"] / one[backend]
            limit = SHARE if one["bytes"] > LARGE else None
            note = f"{one['bytes'] / one[backend] / 1e3:.0f} GB/s"
            yield Row(f"{backend} {name}: of copy", round(share, 3), "", limit, True, note)


def decode(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Decode steps of the model as one configuration compiles it."""
    choice = products.tuned(built(options.size, config=CONFIGS[name]))
    words: list[object] = ["play_decode.py", "--model", model(options.size), "--prefill"]
    words += ["--past", options.past, "--times", options.times, "--decode", *options.decode]
    words += ["--config", CONFIGS[name]]
    found: dict[str, Any] = python(*words, **store()).json()
    return found | {"tune": choice}


def decode_rows(found: Mapping[str, Any]) -> Iterator[Row]:
    """Steps with the ops on over steps without: below one is faster."""
    for batch in found["without"]["decode"]:
        steps = {name: one["decode"][batch]["with_token_us"] for name, one in found.items()}
        for name, step in steps.items():
            yield Row(f"decode {batch}: {name}, token visible", round(step, 1), "us")
        for name in sorted(steps.keys() - {"without"}):
            ratio = round(steps[name] / steps["without"], 4)
            limit = 1.0 if name == "csrc" else None
            yield Row(f"decode {batch}: {name} / without", ratio, "", limit)
    for name, one in found.items():
        rows = products.rows_of(one["tune"]) + products.served(one["tune"], one["routes"])
        yield from (replace(row, name=f"{name}: {row.name}") for row in rows)


def measured(options: argparse.Namespace) -> int:
    """In a child: time every operator; dry, only say what would be timed."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    from support.op_bench import copies, copy_microseconds, microseconds, shapes

    from vcc.engine.ops.register import load_ops

    load_ops()
    found = []
    device = "meta" if options.dry else "cuda"
    for tokens in options.tokens:
        for one in shapes(tokens, HIDDEN, INNER, device):
            if options.ops and one.case.op not in options.ops:
                continue
            told: dict[str, Any] = {"op": one.case.op, "form": one.case.name, "tokens": tokens}
            told["bytes"] = one.bytes
            if not options.dry:
                count = max(2, -(-OUT_OF_CACHE // one.bytes))
                given = copies(one.case, count)
                told["copy_us"] = copy_microseconds(one.bytes, count)
                for backend, function in functions(one.case.op).items():
                    calls = [partial(function, **tensors, **one.case.numbers) for tensors in given]
                    told[backend] = microseconds(calls)
                del given
                torch.cuda.empty_cache()
            found.append(told)
    if options.measure:
        Path(options.measure).write_text(json.dumps(found))
    else:
        print(json.dumps(found))
    return 0


def functions(op: str) -> dict[str, Callable[..., Any]]:
    """The operator by each back end that has it."""
    import torch

    from vcc.engine.ops.triton import wrapped, wrapped_fused

    found: dict[str, Callable[..., Any]] = {"csrc": getattr(torch.ops.vcc, op)}
    function = next((getattr(p, op) for p in (wrapped, wrapped_fused) if hasattr(p, op)), None)
    if function is not None:
        found["triton"] = partial(function, through=lambda kernel: kernel)
    return found


if __name__ == "__main__":
    sys.exit(main())
