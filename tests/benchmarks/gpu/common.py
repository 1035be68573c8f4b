"""What the GPU benchmarks share: processes, rows with limits, and the JSON that they leave."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.digest import RESULTS, digest

HERE = Path(__file__).parent
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a boot that compiles its sources is no warm boot
MODELS_BYTES = 24_000_000_000
"""What both models and their artifacts take."""

MEMORY = Path("/dev/shm")
OUT = os.environ.get("VCC_BENCH_OUT", "")
"""One more folder for every result, such as one that is copied back from the device."""

TARGET = "sm_90"
MODE = "full_decode_only"
"""Graphs of decode steps with their own attention kernel; prefill runs as plain launches."""
SIZES = {"max_model_len": 4096, "max_num_seqs": 256, "max_num_batched_tokens": 2048}
LIMITS = tuple(w for name, n in SIZES.items() for w in (f"--{name.replace('_', '-')}", n))
"""A decoder's limits in all benchmarks: 51 capture sizes by default, prefill of 2,048 tokens."""


@dataclass(frozen=True)
class Row:
    """One figure beside its limit.

    Attributes:
        name: what was measured.
        value: in `unit`; None where it could not be measured, `note` says why.
        limit: what the project asks of itself; None for a figure without one.
        at_least: whether larger is better.
    """

    name: str
    value: float | None
    unit: str = ""
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the limit is kept; True without one."""
        if self.limit is None:
            return True
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    seconds: float
    stdout: str
    stderr: str

    def json(self) -> Any:
        """The object it printed, as a whole or as its last line."""
        try:
            return json.loads(self.stdout)
        except ValueError:
            return json.loads(self.stdout.strip().splitlines()[-1])


def run(
    command: Sequence[object], *, check: bool = True, timeout: float = 560, **more: str
) -> Done:
    """Run a command to its end; a failure ends the benchmark with what it printed."""
    words = [str(word) for word in command]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=os.environ | {"VCC_RECORD_PRODUCTS": "0"} | more,
            timeout=timeout,
        )
        found = Done(done.returncode, time.perf_counter() - start, done.stdout, done.stderr)
    except subprocess.TimeoutExpired as late:
        texts = (late.stdout or b"", late.stderr or b"")
        texts = tuple(t.decode() if isinstance(t, bytes) else t for t in texts)
        found = Done(124, time.perf_counter() - start, *texts)
    if check and found.code:
        sys.exit(
            f"exit {found.code}: {' '.join(words)}\n{found.stdout[-3000:]}\n{found.stderr[-3000:]}"
        )
    return found


def python(script: str, *arguments: object, **more: Any) -> Done:
    """Run a script of this folder, or of another by its path, in a process of its own."""
    path = Path(script) if "/" in script else HERE / script
    return run([sys.executable, path, *arguments], **more)


def measured_apart(script: str, *words: object) -> Any:
    """What a script of this folder measures with `--measure FILE`, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "measured.json"
        python(script, "--measure", out, *words)
        return json.loads(out.read_text())


def vcc(*words: object, **more: Any) -> Done:
    """Run a command of vcc as users do."""
    beside = Path(sys.executable).with_name("vcc")
    command = [beside] if beside.exists() else [sys.executable, "-m", "vcc.cli.main"]
    return run([*command, *words], **more)


def models_folder() -> Path:
    """Where checkpoints and their store are: VCC_BENCH_MODELS, else memory with room for them, else
    build/.

    A file in memory is read as one in the page cache is. Chosen once: what is written there takes
    the room, and a process that chose anew would find another store, without any products.
    """
    if chosen := os.environ.get("VCC_BENCH_MODELS"):
        return Path(chosen)
    place = MEMORY / "vcc-gpu-models"
    if not place.is_dir() and not _roomy():
        place = HERE.parents[2] / "build" / "gpu-models"
    place.mkdir(parents=True, exist_ok=True)
    os.environ["VCC_BENCH_MODELS"] = str(place)  # of the processes that this one starts, too
    return place


def _roomy() -> bool:
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * MODELS_BYTES


def model(size: str) -> Path:
    """The checkpoint of one of the shapes of make_model.py, written now if it is not there."""
    place = models_folder() / size
    python("make_model.py", size, place)
    return place


def store() -> dict[str, str]:
    """The environment that points vcc at the benchmarks' own store."""
    return {"VCC_CACHE_DIR": str(models_folder() / "store")}


def asked(size: str, mode: str = MODE) -> tuple[object, ...]:
    """Model and options that say which artifact, for `compile` and for `run`."""
    return (model(size), "--target", TARGET, "--dtype", "bf16", "--mode", mode, *LIMITS)


def built(size: str, mode: str = MODE, config: str = "") -> Done:
    """Compile a model for the device, unless the store has it; no weights are read."""
    words = ("--compilation-config", config) if config else ()
    return vcc("compile", *asked(size, mode), *words, "--weights", "none", "--json", **store())


def ends_of(text: str, each: int = 1500) -> str:
    """Beginning and end of what a process printed: where it failed, and its last words."""
    text = text.strip()
    return text if len(text) <= 2 * each else f"{text[:each]}\n...\n{text[-each:]}"


def median(values: Sequence[float], digits: int = 4) -> float:
    """Median, rounded."""
    return round(statistics.median(values), digits)


def machine() -> dict[str, object]:
    """Where the figures come from."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    except OSError:
        shown = ""
    name, _, driver = (shown.splitlines() or ["none"])[0].partition(", ")
    found = {"gpu": name, "driver": driver, "cores": len(os.sched_getaffinity(0))}
    return found | {"python": platform.python_version()} | _versions("torch", "triton", "vcc")


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def publish(
    name: str, what: str, rows: Sequence[Row], details: Mapping[str, object] | None = None
) -> int:
    """Write gpu-<name>.json, print it and each row; returns 1 when a limit is missed."""
    content = {
        "what": what,
        "digest": digest(),
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
        **(details or {}),
    }
    text = json.dumps(content, indent=2) + "\n"
    for folder in filter(None, (str(RESULTS), OUT)):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"gpu-{name}.json").write_text(text, encoding="utf-8")
    for row in rows:
        state = "" if row.limit is None else "ok" if row.reached else "MISSED"
        bound = "" if row.limit is None else f"{'>=' if row.at_least else '<='} {row.limit:g}"
        value = "-" if row.value is None else f"{row.value:.4g}"
        print(f"{row.name:64} {value:>10} {row.unit:7} {bound:10} {state} {row.note}", flush=True)
    return int(not all(row.reached for row in rows))
