"""vcc's side of bench_forwards.py, in a process without torch; prints one JSON line."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from vcc.engine.monitor import process_start

START = process_start()

import calls  # noqa: E402
import numpy as np  # noqa: E402
from common import TARGET, models_folder  # noqa: E402
from forward_models import KINDS  # noqa: E402

import vcc  # noqa: E402
from vcc.engine.runtime.player.forward import ForwardTable, PlayedForward, shape_for, sizes_of  # noqa: E402
from vcc.engine.runtime.player.handle import Inputs, Read, Shape  # noqa: E402

HEAVY = ("torch", "triton", "transformers", "sympy")


def stepping(played: PlayedForward, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, Any]:
    """A step on the inputs that lie on the device, as a call; and its table."""
    sizes = sizes_of(played._tables[0].table, shapes)
    taken: ForwardTable = played._table(sizes)
    handle = taken.step.handle
    shape, slot = shape_for(sizes), handle.slot()
    return lambda: handle.step(shape, 1, slot, Inputs.NONE, Read.NOTHING), (handle, shape)


def routes(handle: Any, shape: Shape) -> dict[str, int]:
    """How many products each route computes."""
    found: dict[str, int] = {}
    for gemm in handle.gemms(shape.tokens, shape.seqs):
        route = str(gemm.get("route", "?"))
        found[route] = found.get(route, 0) + 1
    return found


def main() -> None:
    """Boot, answer, write the answer, and time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--range", default="", help="of the declared batch; else it is fixed")
    parser.add_argument("--out", type=Path, help="a file for the outputs")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each timing; 0 only answers")
    options = parser.parse_args()
    kind = KINDS[options.kind]
    forward = vcc.load_forward(
        str(options.model),
        shapes=kind.shapes(options.range or options.batch),
        cache_dir=models_folder() / "store",
        require_warm=True,
        golden="off",
        dtype="bf16",
        target=TARGET,
    )
    booted = time.perf_counter()
    inputs = kind.inputs(options.batch)
    found = forward(inputs)
    told: dict[str, Any] = {"first_answer_seconds": round(time.perf_counter() - START, 4)}
    told["booted_seconds"] = round(booted - START, 4)
    told["heavy"] = [name for name in HEAVY if name in sys.modules]
    told["counters"] = forward.counters.as_dict()
    if options.out:
        np.savez(options.out, **{n.removeprefix("output_"): one for n, one in found.items()})
    if options.seconds:
        step, (handle, shape) = stepping(
            forward.forward, {name: value.shape for name, value in inputs.items()}
        )
        told["graphs"] = handle.graphs(wait=True).ready
        waited = calls.timed(step, options.seconds)
        told |= {"call_us": waited.us, "rounds": waited.rounds}
        told["host_us"] = calls.timed(lambda: forward(inputs), options.seconds).us
        told["routes"] = routes(handle, shape)
        told["stats"] = handle.stats()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
