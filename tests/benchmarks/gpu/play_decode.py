"""vcc's side of bench_decode.py, in a process without torch; prints one JSON line."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from player_session import Playing


def timed_decode(playing: Playing, seqs: int, past: int, steps: int) -> dict[str, float]:
    """Microseconds a step: one launched ahead, as generation does it, and in turn; the gap."""
    playing.decode(seqs, past, 8)
    found = {}
    for name, ahead in (("with_token_us", 1), ("in_turn_us", 0)):
        start = time.perf_counter()
        done, gaps = playing.decode(seqs, past, steps, ahead)
        found[name] = 1e6 * (time.perf_counter() - start) / done
        if ahead == 1:
            found["gap_us"] = statistics.median(gaps.tolist()) / 1e3
            found["steps"] = done
    return found


def in_rounds(
    playing: Playing, batches: list[int], past: int, steps: int, rounds: int
) -> dict[int, dict[str, Any]]:
    """All batches in turn, so that none has the cold start; medians over the rounds."""
    runs = [{b: timed_decode(playing, b, past, steps) for b in batches} for _ in range(rounds)]
    found: dict[int, dict[str, Any]] = {}
    for batch in batches:
        ones = [run[batch] for run in runs]
        found[batch] = {name: statistics.median(one[name] for one in ones) for name in ones[0]}
        found[batch]["gap_us_of_rounds"] = [round(one["gap_us"], 2) for one in ones]
    return found


def timed_prefill(playing: Playing, tokens: int, times: int) -> dict[str, float]:
    """Microseconds of one step, logits read."""
    slot = playing.fill(1, tokens, 0)
    walls = []
    for _ in range(times + 3):
        start = time.perf_counter()
        playing.prefill(tokens, slot)
        walls.append(1e6 * (time.perf_counter() - start))
    return {"with_token_us": statistics.median(walls[3:]), "least_us": min(walls[3:])}


def main() -> None:
    """Boot and time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048])
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--config", help="compilation config of the artifact, as JSON")
    options = parser.parse_args()
    lengths = [options.past + 1024] * max([1, *options.decode]) + [*options.prefill]
    playing = Playing.of(options.model, lengths, config=options.config)
    counts = playing.handle.graphs(wait=True)
    decode = in_rounds(playing, options.decode, options.past, options.times, options.rounds)
    prefill = {n: timed_prefill(playing, n, 20) for n in options.prefill}
    routes = {str(b): _routes(playing, b) for b in (*options.decode, *options.prefill)}
    heavy = [name for name in ("torch", "triton", "transformers", "sympy") if name in sys.modules]
    told = {"decode": decode, "prefill": prefill, "routes": routes, "heavy": heavy}
    told["gemms"] = str(playing.runner._parts.gemms.report)
    print(json.dumps(told | {"graphs": counts.ready, "stats": playing.handle.stats()}))


def _routes(playing: Playing, tokens: int) -> dict[str, int]:
    """How many products of a step each route computes."""
    seqs = tokens if tokens <= 256 else 1
    found: dict[str, int] = {}
    for gemm in playing.handle.gemms(tokens, seqs):
        route = str(gemm.get("route", "?"))
        found[route] = found.get(route, 0) + 1
    return found


if __name__ == "__main__":
    main()
