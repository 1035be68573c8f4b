"""The arena on a device: how fast weights fall asleep and wake, what a sleep frees, what is wasted.

    python bench_arena.py --weights 16 --kv 32 --rings 16x2 8x2 16x4

Sizes in GB. The first ring (threads x MiB of a slot) is held to the limit, the others show what the
numbers do. No torch. Writes gpu-arena.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

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
        "vcc_arena_ring": "ptr u32 u64",
        "vcc_arena_times": "ptr -> str",
        "vcc_device_fill": "ptr ptr u32 u64",
        "vcc_device_read": "ptr ptr buffer u64",
    }
)


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


SPLIT = {
    "memory": "mapping or unmapping, ms",
    "copy": "copying beyond that, ms",
    "host": "host copies of all threads, ms",
    "link": "waits for the link of all threads, ms",
}


def ring_of(text: str) -> tuple[int, int]:
    """Threads and bytes of a slot from "16x2"; "0x0" leaves the choice to the arena."""
    threads, mib = text.split("x")
    return int(threads), int(mib) << 20


def name_of(ring: str) -> str:
    """A row of the table of rings."""
    return "the arena's choice" if ring == "0x0" else f"{ring} MiB"


def shown(found: Mapping[str, Any]) -> dict[str, float]:
    """A ring's speeds in GB/s, and where a wake spent its time in ms."""
    speeds = {f"{act}, GB/s": round(found[act], 1) for act in ("sleep", "wake")}
    return speeds | {label: round(value, 1) for label, value in found["split"]["wake"].items()}


def split(arena: vcc.Arena) -> dict[str, dict[str, float]]:
    """Milliseconds of the last sleep and wake by what they were spent on."""
    times = json.loads(F.vcc_arena_times(arena.handle))
    return {
        act: {label: 1000 * times[act][key] for key, label in SPLIT.items()}
        for act in ("sleep", "wake")
    }


def sleeping(weights: int, kv: int, repeat: int, ring: str) -> dict[str, Any]:
    """Sleep and wake weights and a KV range of these bytes; medians."""
    with vcc.Arena() as arena:
        F.vcc_arena_ring(arena.handle, *ring_of(ring))
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
            parted = split(arena)
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
        "split": parted,
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
    parser.add_argument(
        "--rings", nargs="*", default=["0x0", "8x2", "12x2", "16x1", "16x4", "16x8"]
    )
    options = parser.parse_args()
    sizes = int(options.weights * GB), int(options.kv * GB), options.repeat
    all_found = {ring: sleeping(*sizes, ring) for ring in options.rings}
    found = all_found[options.rings[0]]
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
    table = {name_of(ring): shown(one) for ring, one in all_found.items()}
    return publish("arena", what, rows, {"tables": {"Rings": table}, "found": all_found})


if __name__ == "__main__":
    sys.exit(main())
