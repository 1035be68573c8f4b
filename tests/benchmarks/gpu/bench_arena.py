"""The arena on a device: how fast weights fall asleep and wake, what a sleep frees, what is wasted.

    python bench_arena.py --weights 16 --kv 32

Sizes in GB. No torch. Writes gpu-arena.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from common import Row, publish
from support.allocations import SERIES, worst_waste

import vcc
from vcc.engine import native

GB = 10**9
LAYERS = 32
F = native.functions(
    {
        "vcc_arena_reserve_range": "ptr u64 u64 str -> u64",
        "vcc_arena_map_range": "ptr u64 u64 u64",
        "vcc_device_fill": "ptr ptr u32 u64",
        "vcc_device_read": "ptr ptr buffer u64",
    }
)


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def sleeping(weights: int, kv: int, repeat: int) -> dict[str, float]:
    """Sleep and wake weights and a KV range of these bytes; medians."""
    with vcc.Arena() as arena:
        parts = [arena.allocate(weights // LAYERS, "weights") for _ in range(LAYERS)]
        for number, part in enumerate(parts):
            F.vcc_device_fill(arena.device_handle, part, number + 1, weights // LAYERS)
        base = F.vcc_arena_reserve_range(arena.handle, 2 * kv, 0, "kv_cache")
        chunk = 32 << 20
        mapping = seconds(lambda: F.vcc_arena_map_range(arena.handle, base, 0, kv // chunk * chunk))
        held = arena.stats.mapped
        sleeps, wakes, freed = [], [], []
        for _ in range(repeat):
            before = arena.available()
            sleeps.append(seconds(arena.sleep))
            freed.append((arena.available() - before) / held)
            wakes.append(seconds(lambda: arena.wake(["weights"])))
            arena.wake()
        last = bytearray(1)
        for number, part in enumerate(parts):
            at = part + weights // LAYERS - 1
            F.vcc_device_read(arena.device_handle, at, last, 1)
            if last[0] != number + 1:
                raise SystemExit(f"part {number} came back wrong")
    return {
        "sleep": weights / GB / statistics.median(sleeps),
        "wake": weights / GB / statistics.median(wakes),
        "freed": statistics.median(freed),
        "map kv": kv / GB / mapping,
    }


def waste() -> dict[str, float]:
    """The largest mapped / live after trim of each series."""
    found = {}
    for name, series in SERIES.items():
        with vcc.Arena() as arena:

            def ratio(arena: vcc.Arena = arena) -> float:
                arena.trim()
                stats = arena.stats
                return stats.mapped / stats.live

            found[name] = worst_waste(series, lambda n, a=arena: a.allocate(n), arena.free, ratio)
    return found


def main() -> int:
    """Measure; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=float, default=16)
    parser.add_argument("--kv", type=float, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    found = sleeping(int(options.weights * GB), int(options.kv * GB), options.repeat)
    wasted = waste()
    rows = [
        Row("wake of weights that slept at level 1", found["wake"], "GB/s", 40, at_least=True),
        Row("sleep at level 1", found["sleep"], "GB/s"),
        Row("share of weights and KV that a sleep frees", found["freed"], "", 0.99, at_least=True),
        Row("KV cache mapped", found["map kv"], "GB/s"),
        *(
            Row(f"mapped / live after trim, {name}", value, "", 1.25)
            for name, value in wasted.items()
        ),
    ]
    what = f"{options.weights:g} GB of weights and {options.kv:g} GB of KV cache in the arena"
    return publish("arena", what, rows, {})


if __name__ == "__main__":
    sys.exit(main())
