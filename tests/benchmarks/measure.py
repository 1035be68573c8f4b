"""Run a command and measure it: wall time, and peak memory over its process tree."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
VCC = str(Path(sys.executable).with_name("vcc"))
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Run:
    """One finished command.

    Attributes:
        seconds: wall time from before the process exists to after it is gone.
        peak_bytes: largest sum of resident memory over the process and its descendants, seen every
            50 ms; shared pages count once for each process. 0 where it was not watched.
        stdout: what it printed.
    """

    seconds: float
    peak_bytes: int
    stdout: str

    def json(self) -> dict:
        """The JSON object that the command printed, as its last line or as a whole."""
        try:
            return json.loads(self.stdout)
        except ValueError:
            return json.loads(self.stdout.strip().splitlines()[-1])


def run(command: Sequence[str], *, memory: bool = False, **environment: str) -> Run:
    """Run `command` to its end; a failure ends the benchmark with what it printed.

    Args:
        command: program and arguments.
        memory: watch the process tree; the watching costs a little time of its own.
        environment: variables set on top of this process's.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=os.environ | environment
        )
        peak = watch(child) if memory else 0
        code = child.wait()
        seconds = time.perf_counter() - start
        texts = [stream.seek(0) or stream.read().decode() for stream in (out, err)]
    if code:
        sys.exit(f"exit {code}: {' '.join(command)}\n{texts[0]}\n{texts[1]}")
    return Run(seconds, peak, texts[0])


def watch(child: subprocess.Popen) -> int:
    """Peak resident bytes of the tree until `child` ends."""
    peak = 0
    while child.poll() is None:
        peak = max(peak, tree_bytes(child.pid))
        time.sleep(POLL_SECONDS)
    return peak


def tree_bytes(pid: int) -> int:
    """Resident bytes of a process and its descendants; those that just ended count nothing."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for member in family:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def median(values: Sequence[float]) -> float:
    """Median, rounded to a tenth of a millisecond."""
    return round(statistics.median(values), 4)


@dataclass(frozen=True)
class Pair:
    """Two calls measured in turn: median microseconds of each, median of neighbours' ratios."""

    us: float
    peer_us: float
    ratio: float


def in_pairs(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int, seconds: float
) -> Pair:
    """Measure two calls in turn, in rounds of about `seconds` of the slower one.

    Other work on the machine hits neighbouring rounds alike, so the ratio is theirs.
    """
    count = max(1, int(seconds / max(timed(ours, 1), timed(peer, 1))))
    found = [(timed(ours, count), timed(peer, count)) for _ in range(rounds)]
    mine, theirs = (1e6 * statistics.median(column) for column in zip(*found, strict=True))
    ratio = statistics.median(one / other for one, other in found)
    return Pair(round(mine, 1), round(theirs, 1), round(ratio, 3))


@dataclass(frozen=True)
class Squared:
    """Two programs, each opened twice and called in turn.

    Attributes:
        us, peer_us: median microseconds of processor time of a call.
        ratio: median over rounds of ours to the peer's.
        same: the same of one opening to the other of the same program, the larger of both; what a
            ratio cannot tell from 1.
    """

    us: float
    peer_us: float
    ratio: float
    same: float


Openings = tuple[Callable[[], object], Callable[[], object]]


def in_squares(ours: Openings, peer: Openings, rounds: int, seconds: float) -> Squared:
    """Measure processor time in rounds of ours, peer, peer, ours; each for about `seconds`.

    Processor time does not count what others on the machine do meanwhile; that of threads that
    wait for each other does, so call it with one thread.
    """
    calls = (ours[0], peer[0], peer[1], ours[1])
    count = max(1, int(seconds / max(processor_time(call, 1) for call in calls)))
    found = [[processor_time(call, count) for call in calls] for _ in range(rounds)]
    mine, theirs = ([(row[i] + row[j]) / 2 for row in found] for i, j in ((0, 3), (1, 2)))
    ratio = statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
    pairs = ((0, 3), (1, 2))
    same = (statistics.median(row[i] / row[j] for row in found) for i, j in pairs)
    far = max(max(one, 1 / one) for one in same)
    us, peer_us = (round(1e6 * statistics.median(times), 1) for times in (mine, theirs))
    return Squared(us, peer_us, round(ratio, 3), round(far, 3))


def processor_time(call: Callable[[], object], count: int) -> float:
    """Seconds of processor time of one of `count` calls."""
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def timed(call: Callable[[], object], count: int) -> float:
    """Seconds of one of `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def calm() -> str:
    """Whether figures of now can be trusted, as a sentence for their file."""
    if os.getloadavg()[0] > (os.cpu_count() or 1) + 1:
        return "the machine was busy with other work, so this is to be measured again"
    return "the machine was calm"


def machine() -> dict[str, object]:
    """Where the figures come from."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": version("torch"),
        "vcc": version("vcc"),
    }


def write(name: str, content: Mapping[str, object]) -> Path:
    """Write docs/benchmarks/<name>.json with the machine beside the figures."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **content}, indent=2) + "\n")
    return path


def judged(name: str, what: str, ratios: Mapping[str, float], limit: float, **more: object) -> int:
    """Judge ratios by one limit and write them with the machine's load; 1 when one is above.

    Args:
        what: was measured; whether the machine was calm is added.
        more: further content of the file.
    """
    limits = dict.fromkeys(ratios, limit)
    missed = verdicts(ratios, limits)
    told = {"what": f"{what}; {calm()}", "load": round(os.getloadavg()[0], 1), **more}
    print(f"written: {write(name, {**told, 'ratios': ratios, 'limits': limits})}")
    return missed


def verdicts(ratios: Mapping[str, float], limits: Mapping[str, float]) -> int:
    """Print each ratio beside its limit; returns 1 when one is above."""
    for name, ratio in ratios.items():
        state = "ok" if ratio <= limits[name] else "ABOVE THE LIMIT"
        print(f"{name:44} {ratio:6.3f}  limit {limits[name]:.3f}  {state}")
    return int(any(ratio > limits[name] for name, ratio in ratios.items()))
