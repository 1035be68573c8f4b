"""Jobs for tests/gpu/player_process.py, and the processes that do them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcc.engine.config.environment import recorder_environment
from vcc.engine.tune.job import Job as RecordingJob

GPU = Path(__file__).resolve().parents[1] / "gpu"
RUN = "import sys; from vcc.cli.main import main; main()"


@dataclass(frozen=True)
class Done:
    """A finished process."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams: with `--json` an error is on the first."""
        return self.out + self.err

    @property
    def json(self) -> Any:
        """The object it printed, as a whole or as its last line."""
        try:
            return json.loads(self.out)
        except ValueError:
            return json.loads(self.out.strip().splitlines()[-1])


def python(*words: object, timeout: float = 300, **environment: str) -> Done:
    """Run Python with these arguments; nothing is raised for a failure."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def vcc(*words: object, store: Path, timeout: float = 300, **environment: str) -> Done:
    """Run a command of vcc in a process of its own."""
    return python("-c", RUN, *words, timeout=timeout, VCC_CACHE_DIR=str(store), **environment)


@dataclass(frozen=True)
class Job:
    """What a player and a reference compute.

    Attributes:
        model: the checkpoint.
        store: where its artifact is.
        options: fields of ModelOptions.
        prompts: token ids by name.
        wanted: positions whose logits are wanted, by prompt, ascending.
        runs: schedules by name.
        others: boots of the same artifact that come first and stay.
        repeats: how often the last step is repeated in the end.
    """

    model: Path
    store: Path
    options: Mapping[str, Any]
    prompts: Mapping[str, Sequence[int]]
    wanted: Mapping[str, Sequence[int]]
    runs: Mapping[str, Sequence[Mapping[str, int]]]
    others: int = 0
    repeats: int = 0

    def write(self, file: Path) -> Path:
        """The job as its process reads it."""
        content = {
            "model": str(self.model),
            "store": str(self.store),
            "options": dict(self.options),
            "prompts": {name: list(tokens) for name, tokens in self.prompts.items()},
            "wanted": {name: list(rows) for name, rows in self.wanted.items()},
            "runs": {name: [dict(step) for step in steps] for name, steps in self.runs.items()},
            "others": self.others,
            "repeats": self.repeats,
        }
        file.write_text(json.dumps(content))
        return file

    def done_by(self, script: str, folder: Path) -> tuple[dict[str, np.ndarray], Done]:
        """Arrays and output of one of the scripts of tests/gpu."""
        out = folder / f"{script}.npz"
        done = python(GPU / f"{script}.py", self.write(folder / f"{script}.json"), out)
        assert done.code == 0, done.err[-4000:] or done.out[-4000:]
        with np.load(out) as arrays:
            return dict(arrays), done


def words(options: Mapping[str, Any]) -> list[object]:
    """Options as a command line has them."""
    pairs = ((f"--{name.replace('_', '-')}", value) for name, value in options.items())
    return [word for pair in pairs for word in pair]


def build(job: Job) -> None:
    """Compile the job's model into its store."""
    done = vcc("compile", job.model, *words(job.options), store=job.store)
    assert done.code == 0, done.err[-4000:]


def spread(length: int, most: int) -> list[int]:
    """Positions to check of a prompt: all, or `most` of them, the first and last 16 among them."""
    if length <= most:
        return list(range(length))
    middle = np.linspace(16, length - 17, most - 32).astype(int).tolist()
    return sorted({*range(16), *middle, *range(length - 16, length)})


def gemm_process(job: RecordingJob, folder: Path, *words: object) -> None:
    """What tests/gpu/gemm_process.py does with a job of recording."""
    done = subprocess.run(
        [sys.executable, GPU / "gemm_process.py", *map(str, words)],
        input=job.text(),
        env=recorder_environment(),
        cwd=folder,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
