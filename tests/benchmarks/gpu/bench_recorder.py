"""Recorded graphs beside torch's own: time of a replay, and that the output is bitwise equal.

    python bench_recorder.py --size 1b --shapes 1,8,64

The peer captures the same eager kernels in a process of its own, without CUPTI. Writes
gpu-recorder.json.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import Row, model, publish, python
from play_recorded import settled

from vcc.engine.events import NullEvents
from vcc.engine.graphs.recorder import process
from vcc.engine.torch_shim.profiles import PROFILES

LIMIT = 1.02


def recorded(name: str, shapes: str, folder: Path) -> dict[str, float]:
    """Record, prove, and keep what the proof had; seconds, nodes and bytes."""
    proved = process.prove

    def kept(recording, tables, place, ordinal=0):
        found = proved(recording, tables, place, ordinal)
        shutil.copytree(place, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("caches"))
        return found

    process.prove = kept
    start = time.perf_counter()
    tables = process.record_model(settled(name, shapes), PROFILES["sm_90"], NullEvents())
    seconds = time.perf_counter() - start
    nodes = sum(one["nodes"] for one in tables.info["recorded"])
    size = sum(len(data) for data in tables.blobs.values())
    return {"seconds": seconds, "nodes": nodes, "bytes": size}


def main() -> int:
    """Measure both sides."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="1b", help="demo, or a shape of make_model.py")
    parser.add_argument("--shapes", default="1,8,64")
    asked = parser.parse_args()
    name = "demo" if asked.size == "demo" else str(model(asked.size))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        told = recorded(name, asked.shapes, folder)
        sides = {}
        for side in ("ours", "torch"):
            sides[side] = python("play_recorded.py", side, folder, name, asked.shapes).json()
    rows = [Row("bitwise equal in a process without torch", 1.0, limit=1.0, at_least=True)]
    ratios = []
    for step, ours in sides["ours"].items():
        peer = sides["torch"][step]
        ratios.append(ours / peer)
        rows.append(Row(f"replay {step}", round(ours, 1), "us", note=f"torch {peer:.1f} us"))
    rows.append(Row("replay, ratio to torch", round(statistics.median(ratios), 4), "x", LIMIT))
    rows.append(Row("recording", round(told["seconds"], 1), "s"))
    details = {"size": asked.size, "sides": sides, "recording": told}
    return publish("recorder", "recorded graphs beside torch's own graphs", rows, details)


if __name__ == "__main__":
    sys.exit(main())
