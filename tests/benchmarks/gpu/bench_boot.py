"""Boot on a GPU: process start to the first token of a 512-token prompt, beside two peers.

    python bench_boot.py --sizes 1b 8b --peers eager whole

Weights lie in the page cache (or in memory), the artifact was built without them, products were
tuned. Each peer boots in a process of its own on the same checkpoint, captures seven decode sizes
(vcc: 35) and answers the same prompt; `whole` and `regional` are warm: they ran once.
Writes gpu-boot-<size>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import products
from common import (
    Row,
    asked,
    built,
    ends_of,
    median,
    model,
    models_folder,
    publish,
    python,
    store,
    vcc,
)
from support.resident import WATCHED, by_mapping

SECONDS = {"1b": 0.9, "8b": 1.5}
TIMES_FASTER = {"whole": 20, "regional": 20, "eager": 3}
RSS_LIMIT, RING = 300e6, 32 << 20


def boots(size: str, times: int, golden: str) -> list[dict]:
    """Reports of `vcc run`, each with the wall time and the peak memory that its parent saw."""
    place = model(size)
    words = ["run", *asked(size), "--prompts", place / "prompt.txt", "--require-warm"]
    words += ["--max-new-tokens", 1, "--temperature", 0, "--ignore-eos", "--json"]
    words += ["--golden", golden]
    vcc(*words, **store())  # the files into the page cache
    found = []
    for _ in range(times):
        found.append(watched([str(word) for word in words]))
        time.sleep(0.5)
    return found


def watched(words: list[str]) -> dict:
    """One boot in a process whose resources are read when it is gone."""
    environment = os.environ | store()
    command = [sys.executable, "-c", WATCHED, *words]
    start = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as child:
        out, err = child.communicate()
        wall = time.perf_counter() - start
    if child.returncode:
        sys.exit(f"exit {child.returncode}\n{out[-2000:]}\n{err[-3000:]}")
    report = json.loads(out)
    told = json.loads(err.strip().splitlines()[-1])
    return {**report, **told, "wall": wall, "resident": by_mapping(told.pop("smaps"))}


def budget(reports: list[dict]) -> dict[str, float]:
    """Median milliseconds of each line of the ledger."""
    names = list(dict.fromkeys(name for report in reports for name in report["phases"]))
    lines = {
        name: 1e3 * statistics.median(r["phases"].get(name, 0.0) for r in reports) for name in names
    }
    return {name: round(value, 1) for name, value in lines.items() if value >= 0.05}


def peers(size: str, ways: list[str], *, warmed: bool) -> dict[str, dict]:
    """Each peer warm, in its own process; `warmed`: it has filled its caches before."""
    found = {}
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(models_folder() / "inductor")}
    for way in ways:
        words = ("peer_model.py", "--model", model(size), "--way", way)
        if way != "eager" and not warmed:
            cold = python(*words, check=False, **cache)
            if cold.code:
                found[way] = {"error": ends_of(cold.stderr)}
                continue
        done = python(*words, check=False, **cache)
        found[way] = {"error": ends_of(done.stderr)} if done.code else done.json()
    return found


def rows_of(size: str, reports: list[dict], others: dict[str, dict]) -> list[Row]:
    """The figures and their limits."""
    first = median([report["first_token_seconds"] for report in reports])
    sums = [sum(r["phases"].values()) / r["seconds"] - 1 for r in reports]
    rows = [
        Row("process start to first token, 512-token prompt", first, "s", SECONDS.get(size)),
        Row("ledger against wall", max(map(abs, sums)), "", 0.05),
        Row("unnamed share of the ledger", share(reports, "other"), "", 0.05),
        Row("process, seen from outside", median([r["wall"] for r in reports]), "s"),
        Row("peak RSS less the ring", (reports[0]["peak_rss"] - RING) / 1e6, "MB", RSS_LIMIT / 1e6),
        Row("heavy modules imported", len(reports[0]["heavy"]), "", 0),
        Row("compiles and traces", counted(reports[0]), "", 0),
    ]
    for way, peer in others.items():
        name = f"{way} peer / vcc"
        if "error" in peer:
            rows.append(Row(name, None, "", TIMES_FASTER[way], True, note=peer["error"][-80:]))
        else:
            ratio = peer["first_token_seconds"] / first
            rows.append(Row(name, round(ratio, 2), "", TIMES_FASTER[way], at_least=True))
    return rows


def share(reports: list[dict], phase: str) -> float:
    """Largest share of one phase."""
    return max(r["phases"].get(phase, 0.0) / r["seconds"] for r in reports)


def counted(report: dict) -> int:
    """What a warm boot must not do."""
    return sum(report["counters"].get(name, 0) for name in ("compiles", "traces"))


def main() -> int:
    """Measure each size; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=["1b", "8b"])
    parser.add_argument("--peers", nargs="*", default=["eager", "regional"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--warmed", action="store_true", help="peers have run here before")
    parser.add_argument("--golden", default="one", help="as vcc run takes it")
    options = parser.parse_args()
    return max(measure(size, options) for size in options.sizes)


def measure(size: str, options: argparse.Namespace) -> int:
    """One size."""
    compiled = built(size)
    choice = products.tuned(compiled)
    reports = boots(size, options.repeat, options.golden)
    others = peers(size, options.peers, warmed=options.warmed)
    details = {
        "tables": {
            "Budget, median ms of each line of the ledger": {size: budget(reports)},
            "Resident bytes at the end of a boot, the largest": {size: reports[0]["resident"]},
            "Peers, seconds of each stage": {
                way: peer.get("stages", {}) for way, peer in others.items() if "stages" in peer
            },
        },
        "compile_seconds": round(compiled.seconds, 2),
        "tune": choice,
        "first_token_seconds": [report["first_token_seconds"] for report in reports],
        "weights": reports[-1].get("weights", reports[-1].get("player")),
        "peers": others,
    }
    what = f"process start to first token of a Llama of {size}, random bf16 weights, in seconds"
    rows = rows_of(size, reports, others) + products.rows_of(choice)
    return publish(f"boot-{size}", what, rows, details)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
