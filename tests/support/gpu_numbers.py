"""Steps of the numbers rule on a device: jobs built and referred side by side, and their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from support.flow import draw_prompts
from support.gpu_jobs import Job, build, spread
from support.numbers import assert_low_precision

VOCAB = 512
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 512,
}
OPTIONS: Mapping[str, Any] = {
    "target": "sm_90",
    "mode": "full",
    "dtype": "bf16",
    "max_num_seqs": 8,
}

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job whose artifact is built, the folder of its processes, and the reference's logits."""

    job: Job
    folder: Path
    reference: Arrays

    def play(self) -> tuple[Arrays, Sequence[str]]:
        """The player's logits, and what heavy modules its process imported."""
        played, done = self.job.done_by("player_process", self.folder)
        return played, done.json["heavy"]

    def check(
        self, played: Arrays, run: str, rule: Callable[..., None] = assert_low_precision
    ) -> None:
        """The numbers rule over all wanted rows of all prompts of a run."""
        exact, peer = (joined(self.reference, d, self.job.prompts) for d in ("float32", "bfloat16"))
        rule(joined(played, run, self.job.prompts), exact, peer)


def job_of(
    model: Path,
    folder: Path,
    lengths: Mapping[str, int],
    rows: int,
    runs: Mapping[str, Sequence[Mapping[str, int]]],
    **limits: int,
) -> Job:
    """What is asked of a checkpoint.

    Args:
        model: the checkpoint.
        folder: gets its store.
        lengths: tokens of each prompt, which are drawn, by its name.
        rows: positions of a prompt that are checked, at most.
        runs: schedules by name.
        limits: options beside OPTIONS.
    """
    prompts = dict(zip(lengths, draw_prompts(tuple(lengths.values()), VOCAB), strict=True))
    return Job(
        model=model,
        store=folder / "store",
        options={**OPTIONS, **limits},
        prompts=prompts,
        wanted={name: spread(len(ids), rows) for name, ids in prompts.items()},
        runs=runs,
    )


def prepared(jobs: Mapping[str, tuple[Job, Path]]) -> dict[str, Prepared]:
    """Compile all jobs, and compute their references, side by side."""
    with ThreadPoolExecutor(2 * len(jobs)) as pool:
        builds = [pool.submit(build, job) for job, _ in jobs.values()]
        logits = {
            name: pool.submit(job.done_by, "reference_process", folder)
            for name, (job, folder) in jobs.items()
        }
        for one in builds:
            one.result()
    return {name: Prepared(*jobs[name], logits[name].result()[0]) for name in jobs}


def joined(arrays: Arrays, run: str, prompts: Mapping[str, Any]) -> torch.Tensor:
    """The rows of all prompts of a run, one after another."""
    return torch.from_numpy(np.concatenate([arrays[f"{run}/{name}"] for name in prompts]))
