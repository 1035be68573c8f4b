"""Time to load and verify an artifact of 100 MB from the page cache, in one blob and in many.

Each run is in a fresh process, as a boot is; its peer is a fresh process that just reads the same
files. Writes docs/benchmarks/verify.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import median, verdicts, write

MEGABYTES, BLOBS, RUNS = 100, (1, 4, 16), 9
LIMIT_MS = 60.0
PREPARE = """
import os, sys
from pathlib import Path
from vcc.cache.manifest import Manifest
from vcc.cache.store import Store
root, size, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
manifest = Manifest(request=(("model.digest", "b"),), code_key=(("a", "b"),))
blobs = {f"constant/{n}": os.urandom(size // count) for n in range(count)}
Store(root).publish(manifest, blobs)
"""
LOAD = """
import json, sys, time
from pathlib import Path
from vcc.cache.store import Store
store, full = Store.open(Path(sys.argv[1])), sys.argv[2] == "sha256"
entry = next(store.entries())
start = time.perf_counter()
loaded = store.load(entry, full=full)
data = loaded.view_all()
print(json.dumps([time.perf_counter() - start, loaded.verified.bytes]))
"""
READ = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
files = [path for path in Path(sys.argv[1]).joinpath("v1/cas").rglob("*") if path.is_file()]
start = time.perf_counter()
with ThreadPoolExecutor(4) as pool:
    data = list(pool.map(Path.read_bytes, files))
print(json.dumps([time.perf_counter() - start, sum(map(len, data))]))
"""


def seconds(code: str, *words: str) -> float:
    """What a fresh process measured of itself, in seconds; checks that it saw all bytes."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"VCC_LOWER_DIRS": "", "VCC_REMOTE": "", "VCC_POLICY": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    taken, size = json.loads(done.stdout)
    if size < 0.99 * MEGABYTES * 1e6:
        sys.exit(f"only {size} bytes were seen")
    return float(taken)


def measured(folder: Path, count: int) -> dict[str, list[float]]:
    """Milliseconds of each way, runs of all ways in turn."""
    root = str(folder / f"store{count}")
    words = [root, str(MEGABYTES * 10**6), str(count)]
    subprocess.run([sys.executable, "-c", PREPARE, *words], check=True)
    ways = {"xxh3": (LOAD, root, "xxh3"), "sha256": (LOAD, root, "sha256"), "read": (READ, root)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, command in ways.items():
            found[name].append(1000 * seconds(*command))
    return found


def main() -> int:
    """Measure, print, write; 1 when a limit is missed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    runs: dict[str, dict[str, list[float]]] = {}
    ratios: dict[str, float] = {}
    limits: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as folder:
        for count in BLOBS:
            name = f"{count} blob{'s' * (count > 1)}"
            found = runs[name] = measured(Path(folder), count)
            middle = {way: median(values) for way, values in found.items()}
            ratios[f"{name}: XXH3-128, own files, ms"] = middle["xxh3"]
            limits[f"{name}: XXH3-128, own files, ms"] = LIMIT_MS
            ratios[f"{name}: SHA-256, ms"] = middle["sha256"]
            ratios[f"{name}: XXH3-128 / reading the files"] = middle["xxh3"] / middle["read"]
            ratios[f"{name}: SHA-256 / reading the files"] = middle["sha256"] / middle["read"]
    content = {
        "what": f"load and verify an artifact of {MEGABYTES} MB from the page cache, medians",
        "runs": RUNS,
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "limits": limits,
        "milliseconds": {
            name: {way: [round(one, 1) for one in values] for way, values in found.items()}
            for name, found in runs.items()
        },
    }
    failed = verdicts({name: ratios[name] for name in limits}, limits)
    print(f"written: {write('verify', content)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
