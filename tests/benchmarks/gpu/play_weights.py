"""Upload a checkpoint's weights several times without torch, for bench_weights.py; prints JSON."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.resident import peak_bytes

from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.expressions import Tied
from vcc.engine.models.source import open_source
from vcc.engine.models.tensor_info import SIZES
from vcc.engine.native import functions
from vcc.engine.runtime.player.copies import Evaluator
from vcc.engine.runtime.player.device import open_device
from vcc.engine.runtime.player.weight_plan import Home, WeightPlan, plan_weights
from vcc.engine.runtime.player.weights import load

ALIGNMENT = 256
C = functions(
    {
        "vcc_arena_open": "ptr u32 -> ptr",
        "vcc_arena_allocate": "ptr u64 str -> ptr",
    }
)


def planned(directory: Path, dtype: str) -> tuple[WeightPlan, int, float]:
    """The plan of a whole model at 256-aligned places, the region's size, and seconds it took."""
    source = open_source(str(directory))
    bindings = bindings_of(source.spec, source.tensors)
    start = time.perf_counter()
    evaluator, homes, at = Evaluator(bindings, source.tensors), [], 0
    for name, binding in bindings.items():
        if isinstance(binding, Tied):
            continue
        shape = evaluator.value(binding).shape
        homes.append(Home(name, dtype, shape, at))
        at += -(-math.prod(shape) * SIZES[dtype] // ALIGNMENT) * ALIGNMENT
    plan = plan_weights(homes, bindings, source.tensors, {})
    return plan, at, time.perf_counter() - start


def main() -> None:
    """Each setting several times, after one that is not counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--readers", type=int, nargs="*", default=[8])
    parser.add_argument("--slots", type=int, nargs="*", default=[2], help="MiB of a slot")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    plan, size, seconds = planned(options.model, options.dtype)
    device = open_device()
    arena = C.vcc_arena_open(device.handle, 1)
    start = time.perf_counter()
    base = C.vcc_arena_allocate(arena, size, "weights")
    allocated = time.perf_counter() - start
    found = {}
    for readers in options.readers:
        for slot in options.slots:
            again = {"readers": readers, "slot_bytes": slot << 20}
            load(plan, device.handle, base, size, **again)
            reports = [
                load(plan, device.handle, base, size, **again).as_dict()
                for _ in range(options.repeat)
            ]
            found[f"{readers} readers, {slot} MiB"] = reports
    told = {"plan_seconds": seconds, "allocate_seconds": allocated, "copies": plan.count}
    told |= {"peak_rss": peak_bytes()}
    told |= {"heavy": [name for name in ("torch", "triton") if name in sys.modules]}
    print(json.dumps(told | {"uploads": found}))


if __name__ == "__main__":
    main()
