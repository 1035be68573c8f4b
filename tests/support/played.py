"""Small models that are built, played without torch by a schedule, and compared with transformers.

Prompts are chunked beside each other and then decoded; every position's logits are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from support.gpu_jobs import Job, build

LENGTHS = {"one": 1, "odd": 17, "many": 200}
LIMITS = {"max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 128}
SCHEDULE: Sequence[Mapping[str, int]] = (
    {"odd": 9, "many": 100},
    {"many": 50, "one": 1},
    {"odd": 8, "many": 47},
    {"many": 1},
    {"many": 1},
    {"many": 1},
)
"""Prefill in chunks beside another prompt, then decode."""

Logits = Callable[[Sequence[int], torch.dtype], Tensor]
"""transformers' logits [tokens, vocab] of a prompt."""

Rule = Callable[[Tensor, Tensor, Tensor], None]
"""Holds logits to a reference and a peer."""


@dataclass(frozen=True)
class Played:
    """A model to build and play.

    Attributes:
        model: its checkpoint.
        target: the device.
        logits: transformers' of it, in fp32 and in bf16.
        options: more fields of ModelOptions.
    """

    model: Path
    target: str
    logits: Logits
    options: Mapping[str, Any] = field(default_factory=dict)

    def prompts(self) -> dict[str, list[int]]:
        """Token ids by name."""
        torch.manual_seed(0)
        return {name: torch.randint(4, 160, (n,)).tolist() for name, n in LENGTHS.items()}

    def job(self, folder: Path) -> Job:
        """What the player does."""
        given = {"target": self.target, "mode": "full", "dtype": "bf16", **LIMITS, **self.options}
        return Job(
            model=self.model,
            store=folder / "store",
            options=given,
            prompts=self.prompts(),
            wanted={name: list(range(n)) for name, n in LENGTHS.items()},
            runs={"mixed": SCHEDULE},
        )

    def between(self, job: Job) -> None:
        """What is done when the artifact is there, before it is played."""

    def told(self, said: Mapping[str, Any]) -> None:
        """Look at what the player said of itself."""

    def check(self, folder: Path, rule: Rule) -> None:
        """Build, play, and hold all logits by a rule.

        Raises:
            AssertionError: how far they are off, or which are not finite.
        """
        job = self.job(folder)
        named = {("compilation_config" if n == "config" else n): v for n, v in job.options.items()}
        with ThreadPoolExecutor(1) as pool:
            building = pool.submit(build, replace(job, options=named))
            wanted = [
                torch.cat([self.logits(one, dtype).float() for one in job.prompts.values()])
                for dtype in (torch.float32, torch.bfloat16)
            ]
            building.result()
        self.between(job)
        found, done = job.done_by("player_process", folder)
        assert not done.json["heavy"]
        self.told(done.json)
        mine = {name: torch.from_numpy(found[f"mixed/{name}"]) for name in job.prompts}
        all_finite(mine)
        rule(torch.cat([*mine.values()]), *wanted)


def all_finite(logits: Mapping[str, Tensor]) -> None:
    """Every logit of every prompt is finite.

    Raises:
        AssertionError: which are not: prompt, positions, the step of SCHEDULE, how many.
    """
    said = []
    for name, rows in logits.items():
        bad = ~rows.isfinite()
        if bad.any():
            at = bad.any(-1).nonzero().flatten().tolist()
            steps = sorted({step_of(name, position) for position in at})
            shown = f"{at[:6]}{' ...' if len(at) > 6 else ''}"
            said.append(f"{name}: {int(bad.sum())} in rows {shown} of {len(rows)}, steps {steps}")
    assert not said, f"logits are not finite: {'; '.join(said)}"


def step_of(name: str, position: int) -> int:
    """The step of SCHEDULE that a position of a prompt is in."""
    done = 0
    for index, step in enumerate(SCHEDULE):
        done += step.get(name, 0)
        if position < done:
            return index
    return len(SCHEDULE)
