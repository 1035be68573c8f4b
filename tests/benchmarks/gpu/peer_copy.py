"""GB/s that torch's copies within the device move, reads and writes counted.

Prints one JSON line. The largest of several kinds counts: a bound that is too low flatters.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

import torch

BYTES = 4 << 30
TIMES, ROUNDS = 10, 5


def seconds(copy: Callable[[], object]) -> float:
    """Of one copy, between events on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    copy()
    found = []
    for _ in range(ROUNDS):
        begin.record()
        for _ in range(TIMES):
            copy()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / TIMES)
    return statistics.median(found)


def bandwidths() -> dict[str, float]:
    """GB/s of the driver's copy, and of a kernel of torch's that reads and writes as much."""
    source = torch.randint(0, 1 << 15, (BYTES // 2,), dtype=torch.int16, device="cuda")
    target = torch.empty_like(source)
    kinds = {
        "driver": lambda: target.copy_(source),
        "kernel": lambda: torch.bitwise_not(source, out=target),
    }
    return {name: 2 * BYTES / seconds(copy) / 1e9 for name, copy in kinds.items()}


def main() -> None:
    """Copy, time, print."""
    found = bandwidths()
    print(json.dumps({"copy_gb_per_second": max(found.values()), "kinds": found}))


if __name__ == "__main__":
    main()
