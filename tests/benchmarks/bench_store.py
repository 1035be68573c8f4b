"""Lists of 10,000 artifacts: whole commands, the median of five runs, and their processor time.

On a machine that does something else too, wall time says little; a command of one thread over files
in memory takes no longer than its processor time where it is alone.

`vcc inspect cache` and `vcc cache ls`, as text and as JSON, for artifacts of 200 models and of as
many models as artifacts, which is a folder for each. The peer reads the same files and parses each
with `json` of the standard library, and checks nothing. A collection of the same store is beside
them.
Writes docs/benchmarks/store.json.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from pathlib import Path

from measure import ROOT, VCC, median, run, verdicts, write

sys.path.insert(0, str(ROOT / "tests"))

ARTIFACTS, RUNS, LIMIT = 10_000, 5, 0.6
MODELS = {"200 models": 200, "10,000 models": ARTIFACTS}
COMMANDS = {
    "inspect cache": ("inspect", "cache"),
    "cache ls": ("cache", "ls"),
    "inspect cache --json": ("inspect", "cache", "--json"),
    "cache ls --json": ("cache", "ls", "--json"),
}
PEER = """
import json, os, sys
root, found = sys.argv[1], []
for base in os.listdir(root):
    for name in os.listdir(os.path.join(root, base)):
        with open(os.path.join(root, base, name), "rb") as file:
            found.append(json.loads(file.read()[:-66]))
assert len(found) == 10_000
"""


def main() -> None:
    """Measure and write."""
    from support.many import fill

    seconds: dict[str, float] = {}
    for title, models in MODELS.items():
        root = Path(tempfile.mkdtemp(prefix="vcc-bench-"))
        try:
            fill(root / "store", ARTIFACTS, models)
            seconds |= measured(root / "store", title)
        finally:
            shutil.rmtree(root)
    limits = {name: LIMIT for name in seconds if name.startswith(("inspect", "cache ls"))}
    ratios = {name: value for name, value in seconds.items() if name in limits}
    write(
        "store",
        {
            "what": "Seconds for lists of 10,000 artifacts: whole commands, median of five runs. A "
            "collection and a peer that parses the same files by `json` and checks nothing are "
            "beside them",
            "ratios": seconds,
            "limits": limits,
        },
    )
    sys.exit(verdicts(ratios, limits))


def measured(root: Path, title: str) -> dict[str, float]:
    """Seconds by what was done."""
    found = {}
    for name, words in COMMANDS.items():
        times = [timed([VCC, *words, "--cache-dir", str(root)]) for _ in range(RUNS)]
        found[f"{name}, {title}"] = median([wall for wall, _ in times])
        found[f"{name}, {title}, processor"] = median([busy for _, busy in times])
    peer = [sys.executable, "-c", PEER, str(root / "v1/refs")]
    found[f"peer, {title}"] = median([run(peer).seconds for _ in range(RUNS)])
    gc = [VCC, "cache", "gc", "--cache-dir", str(root)]
    found[f"collection, {title}"] = median([run(gc).seconds for _ in range(3)])
    return found


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds of a command: wall, and of the processor in user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = run(command).seconds
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
