"""Weights from the page cache to the device: GB/s of the upload that a boot does.

    python bench_weights.py --size 8b --readers 4 8 12 --slots 2 4 8

The first setting's limit is the project's; the others show what the numbers of readers and slots
do. Beside it: `safetensors.torch.load_file(device="cuda")`. Writes gpu-weights.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from common import Row, model, publish, python, run

LIMIT = 25.0
PEER = """
import glob, json, sys, time
import torch
from safetensors.torch import load_file
torch.cuda.init()
torch.empty(1, device="cuda")
best = 0.0
for _ in range(2):
    start = time.perf_counter()
    held = [load_file(f, device="cuda") for f in sorted(glob.glob(sys.argv[1] + "/*.safetensors"))]
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    size = sum(t.nbytes for part in held for t in part.values())
    best = max(best, size / seconds / 1e9)
    del held
print(json.dumps({"gb_per_second": best}))
"""


def speeds(uploads: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Medians by setting."""
    return {
        name: {
            "GB/s": statistics.median(report["gb_per_second"] for report in reports),
            "seconds": statistics.median(report["seconds"] for report in reports),
            "before the first copy": statistics.median(r["first_seconds"] for r in reports),
            "ring MiB": reports[0]["ring_bytes"] / 2**20,
        }
        for name, reports in uploads.items()
    }


def main() -> int:
    """Measure; 1 when the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="8b")
    parser.add_argument("--readers", type=int, nargs="*", default=[8, 4, 6, 12, 16])
    parser.add_argument("--slots", type=int, nargs="*", default=[2, 1, 4, 8])
    options = parser.parse_args()
    place = model(options.size)
    words: list[object] = ["play_weights.py", "--model", place, "--repeat", 3]
    found = python(*words, "--readers", *options.readers[:1], "--slots", *options.slots).json()
    more = python(*words, "--readers", *options.readers[1:], "--slots", options.slots[0]).json()
    wide = python(*words[:3], "--repeat", 2, "--dtype", "float32").json()
    peer = run([sys.executable, "-c", PEER, str(Path(place))], check=False)
    table = speeds(found["uploads"] | more["uploads"])
    first, *_ = table.values()
    peers = peer.json()["gb_per_second"] if peer.code == 0 else None
    (converted,) = speeds(wide["uploads"]).values()
    rows = [
        Row("upload from the page cache", first["GB/s"], "GB/s", LIMIT, at_least=True),
        Row("safetensors.torch.load_file to the GPU", peers, "GB/s"),
        Row("upload with bf16 made fp32 on the way", converted["GB/s"], "GB/s"),
        Row("plan of all copies from headers", 1e3 * found["plan_seconds"], "ms"),
        Row("memory for the weights", 1e3 * found["allocate_seconds"], "ms"),
        Row("before the first copy is sent", 1e3 * first["before the first copy"], "ms"),
        Row("heavy modules imported", len(found["heavy"]), "", 0),
    ]
    details = {"tables": {"Readers and slots": table}, "uploads": found["uploads"]}
    what = f"all weights of a Llama of {options.size} from the page cache into device memory"
    return publish("weights", what, rows, details)


if __name__ == "__main__":
    sys.exit(main())
