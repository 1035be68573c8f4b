"""Decode and prefill beside the peer and beside what the memory allows.

    python bench_decode.py --size 8b --ways regional
    python bench_decode.py --size 8b --ways whole --decode 1 --prefill   # compiles for minutes

The peer is the same decoder with the same attention kernels and KV cache under torch.compile
(peer_model.py); `whole` is torch.compile(mode="reduce-overhead"), `regional` compiles one layer for
all and captures the step itself. Writes gpu-decode-<size>.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from common import Row, built, ends_of, model, models_folder, publish, python, store, tuned
from make_model import config_of

SHARE = 0.70
GAP_US = 20


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


def peers(size: str, options: argparse.Namespace) -> dict[str, Any]:
    """Each way in its own process; the bandwidth is measured by the first."""
    found: dict[str, Any] = {}
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(models_folder() / "inductor")}
    for index, way in enumerate(options.ways):
        words: list[object] = ["peer_model.py", "--model", model(size), "--way", way]
        words += ["--times", options.times, "--past", options.past, "--prompt-tokens", 16]
        words += ["--decode", *options.decode, "--prefill", *options.prefill]
        words += ["--bandwidth"] if index == 0 else []
        done = python(*words, check=False, **cache)
        found[way] = {"error": ends_of(done.stderr)} if done.code else done.json()
    return found


def rows_of(size: str, mine: dict[str, Any], others: dict[str, Any]) -> list[Row]:
    """The figures and their limits; those of the issue are for 8b."""
    rows = []
    bandwidth = next((o["copy_gb_per_second"] for o in others.values() if "error" not in o), None)
    if bandwidth and "1" in mine["decode"]:
        least = read_bytes(size) / bandwidth / 1e3
        rows.append(Row("copy bandwidth, bytes read and written", bandwidth, "GB/s"))
        step = mine["decode"]["1"]["with_token_us"]
        limit = SHARE if size == "8b" else None
        rows.append(Row("decode 1: weights / bandwidth / step", least / step, "", limit, True))
    for batch, times in mine["decode"].items():
        rows.append(Row(f"decode {batch}: step, token visible", times["with_token_us"], "us"))
        rows.append(Row(f"decode {batch}: step, none ahead", times["in_turn_us"], "us"))
        limit = GAP_US if batch == "1" else None
        rows.append(Row(f"decode {batch}: host gap, median", times["gap_us"], "us", limit))
    for tokens, times in mine["prefill"].items():
        rows.append(Row(f"prefill {tokens}: step", times["with_token_us"], "us"))
    for way, other in others.items():
        rows += compared(way, mine, other)
    rows.append(Row("heavy modules imported", len(mine["heavy"]), "", 0))
    return rows


def compared(way: str, mine: dict[str, Any], other: dict[str, Any]) -> list[Row]:
    """vcc / peer, token visible on both sides; batch 1 and prefill have a limit."""
    if "error" in other:
        return [Row(f"{way} peer", None, "", 1.0, note=other["error"].strip()[-100:])]
    rows = []
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
    parser.add_argument("--ways", nargs="*", default=["regional"])
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048])
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    built(options.size)
    choice = tuned(options.size)
    words: list[object] = ["play_decode.py", "--model", model(options.size)]
    words += ["--past", options.past, "--times", options.times]
    words += ["--decode", *options.decode, "--prefill", *options.prefill]
    mine = json.loads(python(*words, **store()).stdout.strip().splitlines()[-1])
    others = peers(options.size, options)
    what = f"decode after {options.past} tokens, and prefill, of a Llama of {options.size} in bf16"
    rows = rows_of(options.size, mine, others)
    return publish(
        f"decode-{options.size}", what, rows, {"vcc": mine, "peers": others, "tune": choice}
    )


if __name__ == "__main__":
    sys.exit(main())
