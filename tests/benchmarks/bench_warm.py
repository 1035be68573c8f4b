"""Warm start: another program's caches through the store, and the check of a list of builds.

The program compiles a random Llama of 4 layers by torch.compile and runs a step. Wall time of the
whole process: without caches, with those of its own from an earlier run, and under `vcc run --`
with an empty store and with a filled one. Beside that `vcc prewarm --check` of 50 builds that are
there. Writes docs/benchmarks/warm.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench_compile import PEER, write_config
from measure import RESULTS, ROOT, VCC, median, run, verdicts, write

LIMITS = {
    "guest: filled store / no caches": 0.6,
    "guest: filled store / own caches": 1.25,
    "guest: empty store / no caches": 1.15,
    "prewarm --check of 50 builds, s": 2.0,
}


def guest(repeat: int) -> dict[str, object]:
    """Medians of the program's four starts, in seconds."""
    found: dict[str, list[float]] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="vcc-bench-") as fresh:
            for name, seconds in _starts(Path(fresh)).items():
                found.setdefault(name, []).append(seconds)
    return {name: median(values) for name, values in found.items()}


def _starts(fresh: Path) -> dict[str, float]:
    program = [sys.executable, PEER, "--config", str(write_config(fresh, 4))]
    places = {name: fresh / name for name in ("plain", "ours")}
    for place in places.values():
        (place / "tmp").mkdir(parents=True)
    own = {"TORCHINDUCTOR_CACHE_DIR": f"{fresh}/plain/inductor", "TMPDIR": f"{fresh}/plain/tmp"}
    store = {"VCC_CACHE_DIR": f"{fresh}/ours/store", "TMPDIR": f"{fresh}/ours/tmp"}
    report = fresh / "report.json"
    wrapped = [VCC, "run", "--report", str(report), "--", *program]
    seconds = {
        "no caches": run(program, **own).seconds,
        "own caches": run(program, **own).seconds,
        "empty store": run(wrapped, **store).seconds,
        "filled store": run(wrapped, **store).seconds,
    }
    made = json.loads(report.read_text())["made"]
    if made:
        sys.exit(f"compiled anyway: {[one['path'] for one in made]}")
    return seconds


def check(repeat: int) -> float:
    """Median seconds of a check of 50 builds that the store has."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.prewarmed import publish_all

    from vcc.cache.store import Store

    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as fresh:
        file, store = Path(fresh) / "vcc.toml", Path(fresh) / "store"
        tables = (f'[[build]]\nmodel = "demo"\nmax_num_seqs = {n + 1}\n' for n in range(50))
        file.write_text("".join(tables))
        publish_all(file, Store.open(store))
        command = [VCC, "prewarm", str(file), "--check", "--cache-dir", str(store), "--json"]
        runs = [run(command) for _ in range(max(3, repeat))]
    if any(one.json()["counts"]["present"] != 50 for one in runs):
        sys.exit("not all builds were there")
    return median([one.seconds for one in runs])


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="the check alone; the rest stays")
    options = parser.parse_args()
    kept = json.loads((RESULTS / "warm.json").read_text()) if options.check else {}
    starts = kept["guest seconds"] if options.check else guest(options.repeat)
    checked = check(options.repeat)
    ratios = {
        "guest: filled store / no caches": starts["filled store"] / starts["no caches"],
        "guest: filled store / own caches": starts["filled store"] / starts["own caches"],
        "guest: empty store / no caches": starts["empty store"] / starts["no caches"],
        "prewarm --check of 50 builds, s": checked,
    }
    missed = verdicts(ratios, LIMITS)
    content = {
        "what": "a torch.compile program under vcc run --, and a check of a list: seconds",
        "repeat": kept.get("repeat", options.repeat),
        "guest seconds": starts,
        "check seconds": checked,
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "limits": LIMITS,
    }
    print(f"written: {write('warm', content)}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
