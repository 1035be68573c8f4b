"""Decode and prefill beside two peers and beside what the memory allows.

    python bench_decode.py --size 8b
    python bench_decode.py --size 8b --ways regional

First the products are recorded and chosen, while nothing else uses the device. The peers are the
same decoder with the same attention kernels and KV cache under torch.compile
(peer_model.py): `whole` is torch.compile(mode="reduce-overhead") of the model, `regional` compiles
one layer for all and captures the step in one CUDA graph. `whole` compiles for minutes at 32
layers, one shape a process, beside the other work; what is not compiled by `--patience` is told.
Then vcc and the peers are timed one after another, and vcc once more when they are gone: a context
that waits makes every launch dearer. Writes gpu-decode-<size>.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import products
from common import Row, built, model, models_folder, publish, python, store
from held import Held
from make_model import config_of

SHARE = 0.70
GAP_US = 20
WHOLE = 1
"""The decode batch that `whole` compiles: more are more minutes."""


def read_bytes(size: str) -> int:
    """Bytes of weights that one decode step must read: all but rows of an untied embedding."""
    config = config_of(size)
    hidden, inner, vocab = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    kv = config["num_key_value_heads"] * config["head_dim"]
    q = config["num_attention_heads"] * config["head_dim"]
    layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inner + 2 * hidden
    return 2 * (config["num_hidden_layers"] * layer + hidden + vocab * hidden)


def parts(options: argparse.Namespace) -> dict[str, tuple[str, list[int], list[int]]]:
    """The peers' processes: way, decode batches, prefill lengths. `whole` has one a shape."""
    found = {}
    if "regional" in options.ways:
        found["regional"] = ("regional", options.decode, options.prefill)
    if "whole" in options.ways:
        found["whole decode"] = ("whole", [WHOLE], [])
        found |= {f"whole prefill {n}": ("whole", [], [n]) for n in options.prefill}
    return found


def started(size: str, options: argparse.Namespace, folder: Path) -> dict[str, Held]:
    """All peers, compiling at once."""
    more = {
        "TORCHINDUCTOR_CACHE_DIR": str(models_folder() / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
    }
    found = {}
    for name, (way, decode, prefill) in parts(options).items():
        words: list[object] = ["peer_model.py", "--model", model(size), "--way", way]
        words += ["--times", options.times, "--past", options.past]
        words += ["--prompt-tokens", 16 if way == "regional" else 0]
        words += ["--decode", *decode, "--prefill", *prefill]
        found[name] = Held.start(folder / name.replace(" ", "-"), words, more)
    return found


def rows_of(
    size: str,
    mine: dict[str, Any],
    alone: dict[str, Any],
    others: Mapping[str, Any],
    bandwidth: float,
) -> list[Row]:
    """The figures and their limits; the share of the bandwidth has one for 8b.

    `mine` was timed while the peers waited, as each of them was; `alone` after they had ended.
    """
    rows = [Row("copy bandwidth, bytes read and written", round(bandwidth, 1), "GB/s")]
    if "1" in alone["decode"]:
        least = read_bytes(size) / bandwidth / 1e3
        step = alone["decode"]["1"]["with_token_us"]
        limit = SHARE if size == "8b" else None
        rows.append(Row("decode 1: weights / bandwidth / step", least / step, "", limit, True))
    for batch, times in alone["decode"].items():
        rows.append(Row(f"decode {batch}: step, token visible", times["with_token_us"], "us"))
        rows.append(Row(f"decode {batch}: step, none ahead", times["in_turn_us"], "us"))
        limit = GAP_US if batch == "1" else None
        rounds = times["gap_us_of_rounds"]
        note = f"medians of {len(rounds)} rounds from {min(rounds)} to {max(rounds)}"
        gap = round(times["gap_us"], 2)
        rows.append(Row(f"decode {batch}: host gap, median", gap, "us", limit, note=note))
    for tokens, times in alone["prefill"].items():
        rows.append(Row(f"prefill {tokens}: step", times["with_token_us"], "us"))
    for name, other in others.items():
        rows += compared(name, mine, other)
    rows.append(Row("heavy modules imported", len(alone["heavy"]), "", 0))
    return rows


def compared(name: str, mine: dict[str, Any], other: dict[str, Any]) -> list[Row]:
    """vcc / peer, token visible on both sides; batch 1 and prefill have a limit."""
    if "error" in other:
        return [Row(f"{name} peer", None, "", 1.0, note=other["error"].strip()[-100:])]
    way, rows = other["way"], []
    for kind in ("decode", "prefill"):
        for size, times in other.get(kind, {}).items():
            limit = 1.0 if kind == "prefill" or size == "1" else None
            ratio = mine[kind][size]["with_token_us"] / times["with_token_us"]
            rows.append(Row(f"{kind} {size}: vcc / {way}", round(ratio, 4), "", limit))
            alone = mine[kind][size]["with_token_us"] / times["device_us"]
            rows.append(Row(f"{kind} {size}: vcc with its token / {way} without", round(alone, 4)))
    return rows


def main() -> int:
    """Measure; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="8b")
    parser.add_argument("--ways", nargs="*", default=["regional", "whole"])
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048])
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--patience", type=int, default=380, help="seconds for all compiles")
    options = parser.parse_args()
    choice = products.tuned(built(options.size))
    until = time.monotonic() + options.patience
    with tempfile.TemporaryDirectory() as place:
        held = started(options.size, options, Path(place))
        try:
            return measured(options, held, until, choice)
        finally:
            for one in held.values():
                one.stop()


def measured(
    options: argparse.Namespace, held: Mapping[str, Held], until: float, choice: products.Told
) -> int:
    """Wait while the peers compile; then time one after another."""
    size = options.size
    for one in held.values():
        one.wait(until)
    words: list[object] = ["play_decode.py", "--model", model(size)]
    words += ["--past", options.past, "--times", options.times]
    words += ["--decode", *options.decode, "--prefill", *options.prefill]
    mine = played(words)
    others = {name: one.measured() for name, one in held.items()}
    alone = played(words)  # no other process has a context on the device now
    copied = python("peer_copy.py").json()
    what = f"decode after {options.past} tokens, and prefill, of a Llama of {size} in bf16"
    rows = rows_of(size, mine, alone, others, copied["copy_gb_per_second"])
    rows += products.rows_of(choice) + products.served(choice, alone["routes"])
    details = {"vcc": mine, "alone": alone, "peers": others, "copy": copied, "tune": choice}
    return publish(f"decode-{size}", what, rows, details)


def played(words: list[object]) -> dict[str, Any]:
    """What vcc's side prints."""
    found: dict[str, Any] = json.loads(python(*words, **store()).stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
