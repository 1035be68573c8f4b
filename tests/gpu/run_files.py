"""Run tests of this folder, a process of its own for each file, on one GPU or several at once.

    python run_files.py --gpus 2 [--only "kernels recorder"] [--publish] [-- arguments of pytest]

`--after 0=FILE` begins on GPU 0 when there is such a file: something else is measured there.

A process on a device is slow to get rid of and quick to be in the way: memory that a failed test
holds, or a context that a fault has broken, ends with its file. Each file sees one GPU, those of
ALONE see all, after the others; those of BESIDE compile for minutes and run beside what is on the
last GPU. Prints a line with the time of each file, and what failed; with
`--publish` writes gpu-tests.json, also when SIGTERM ends it: files without an outcome have failed
then. Exits 1 when anything failed.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
LONGEST = (
    *("gemm_store_fp8", "recorder", "recorder_parts", "forwards", "numbers", "experts_played"),
    *("scaled", "golden", "ops", "traced", "gemm_store", "kv_fp8"),
)
"""Begun first, so that none of them is left over at the end."""

ALONE = ("visible",)
"""Files that look at every GPU."""

BESIDE = ("recorder_stock",)
"""Files that need little of a GPU."""

FILLING = ("arena", "boot")
"""Files that take all memory of a GPU: none of BESIDE can be there; they come last."""

RUNNING: set[int] = set()
"""Process groups of the files that run now."""

LIMIT = 500
"""Seconds for a file."""


@dataclass(frozen=True)
class Outcome:
    """What a file came to: counts, names of what failed, reasons of what was skipped."""

    name: str
    seconds: float
    passed: int
    failed: tuple[str, ...]
    skipped: tuple[str, ...]
    said: str

    @property
    def line(self) -> str:
        """For people."""
        counts = f"{self.passed:4} passed {len(self.failed):3} failed {len(self.skipped):3} skipped"
        return f"{self.name:20} {counts} {self.seconds:7.1f} s"


def wanted(folder: Path, only: str) -> list[Path]:
    """The files to run, the longest first.

    Raises:
        SystemExit: a name that is no file.
    """
    names = [word.removeprefix("test_").removesuffix(".py") for word in only.split()]
    every = {file.stem.removeprefix("test_"): file for file in sorted(folder.glob("test_*.py"))}
    if missing := [name for name in names if name not in every]:
        sys.exit(f"no tests called {missing[0]}; there are {', '.join(every)}")
    order = {name: index for index, name in enumerate(LONGEST)}
    order |= dict.fromkeys(FILLING, len(order) + 1)
    chosen = names or list(every)
    return [every[name] for name in sorted(chosen, key=lambda one: order.get(one, len(LONGEST)))]


def devices(count: int) -> list[str]:
    """What CUDA_VISIBLE_DEVICES is for each worker."""
    seen = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    return (seen or [str(index) for index in range(count)])[:count]


def run(file: Path, device: str | None, arguments: list[str]) -> Outcome:
    """One file in a pytest of its own; None leaves it every GPU."""
    start = time.perf_counter()
    more = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", str(file), "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", f"--basetemp={place}/tmp", "--durations=5", *arguments]
        code, said = ended(command, os.environ | more)
        seconds = time.perf_counter() - start
        return outcome(file.stem.removeprefix("test_"), seconds, code, said, report)


def ended(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a command; it and what it started are ended after LIMIT."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        RUNNING.add(process.pid)
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return 124, f"{said}\nended after {LIMIT} s"
        finally:
            RUNNING.discard(process.pid)
    return process.returncode, said


def stopped(number: int, frame: object, *, last: Callable[[], None]) -> None:
    """End what runs, too: a process left on a device is in the way of what comes next."""
    _end_running()
    try:
        last()
    finally:
        _end_running()  # and what a worker began meanwhile
        os._exit(128 + number)


def _end_running() -> None:
    for group in tuple(RUNNING):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def without_end(files: Iterable[Path], found: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes of files that had none when the run was ended."""
    done = {one.name for one in found}
    names = [file.stem.removeprefix("test_") for file in files]
    left = [name for name in names if name not in done]
    said = "the run ended before it did"
    return [Outcome(name, 0.0, 0, (f"{name}: {said}",), (), said) for name in left]


def outcome(name: str, seconds: float, code: int, said: str, report: Path) -> Outcome:
    """Read pytest's report; a file that ends without one has failed as a whole."""
    if not report.exists():
        return Outcome(name, seconds, 0, (f"{name}: pytest ended with {code}",), (), said)
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        states = {child.tag: child for child in case}
        if states.keys() & {"failure", "error"}:
            failed.append(f"{name}::{case.get('name')}")
        elif (skip := states.get("skipped")) is not None:
            skipped.append(str(skip.get("message")))
        else:
            passed += 1
    if code not in (0, 1, 5) or (code == 1 and not failed):
        failed.append(f"{name}: pytest ended with {code}")
    return Outcome(name, seconds, passed, tuple(failed), tuple(skipped), said)


def all_of(
    files: list[Path],
    places: list[str],
    arguments: list[str],
    after: dict[str, Path],
    found: list[Outcome],
) -> None:
    """Files shared among the GPUs, then those that want all of them; outcomes go to `found`."""
    alone, beside, shared = (of_kind(files, kind) for kind in (ALONE, BESIDE, None))
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for file in shared:
        waiting.put(file)
    apart = threading.Thread(
        target=lambda: [told(found, run(file, places[-1], arguments)) for file in beside]
    )

    def work(device: str) -> None:
        while device in after and not after[device].exists():
            time.sleep(0.5)
        while True:
            try:
                file = waiting.get_nowait()
            except queue.Empty:
                return
            if file in of_kind(shared, FILLING):
                apart.join()
            told(found, run(file, device, arguments))

    threads = [apart, *(threading.Thread(target=work, args=(device,)) for device in places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for file in alone:
        told(found, run(file, None, arguments))


def of_kind(files: list[Path], kind: tuple[str, ...] | None) -> list[Path]:
    """Those of a kind; None: those that are neither alone nor beside."""
    names = {file: file.stem.removeprefix("test_") for file in files}
    if kind is None:
        return [file for file in files if names[file] not in (*ALONE, *BESIDE)]
    return [file for file in files if names[file] in kind]


def told(found: list[Outcome], one: Outcome) -> None:
    """Keep an outcome and print it, with the end of what pytest said if something failed."""
    found.append(one)
    text = one.line if not one.failed else f"{one.line}\n{one.said[-6000:]}"
    print(text, flush=True)


def publish(found: list[Outcome], seconds: float) -> None:
    """Write gpu-tests.json."""
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.gpu.common import Row, publish

    failed = [name for one in found for name in one.failed]
    skipped = [why for one in found for why in one.skipped]
    rows = [
        Row("passed", sum(one.passed for one in found)),
        Row("failed", len(failed), limit=0),
        Row("skipped", len(skipped)),
        Row("time", round(seconds, 1), "s"),
    ]
    files = {
        "Files": {
            one.name: {
                "passed": one.passed,
                "failed": len(one.failed),
                "seconds": round(one.seconds, 1),
            }
            for one in found
        }
    }
    details = {"failures": failed, "skips": sorted(set(skipped)), "tables": files}
    publish("tests", "the tests of tests/gpu", rows, details)


def main() -> int:
    """Run, print, and say by the exit code whether everything passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--only", default="", help="names such as `kernels recorder`")
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--after", action="append", default=[], help="GPU=FILE to wait for")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    start = time.perf_counter()
    files = wanted(options.folder, options.only)
    found: list[Outcome] = []

    def last() -> None:
        if options.publish:
            publish([*found, *without_end(files, found)], time.perf_counter() - start)

    signal.signal(signal.SIGTERM, partial(stopped, last=last))
    after = {gpu: Path(file) for gpu, _, file in (one.partition("=") for one in options.after)}
    all_of(files, devices(options.gpus), options.arguments, after, found)
    seconds = time.perf_counter() - start
    print(f"{len(found)} files in {seconds:.1f} s on {options.gpus} GPU(s)", flush=True)
    if options.publish:
        publish(found, seconds)
    for name in (name for one in found for name in one.failed):
        print(f"FAILED {name}")
    return int(any(one.failed for one in found))


if __name__ == "__main__":
    sys.exit(main())
