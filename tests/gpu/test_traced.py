"""Decoders that are traced from `transformers`, played on a device without torch.

Each was built for sm_90 from the model of `transformers` (docs/transformers.md) and has no row in
the table of built-in decoders. Logits of prompts that are prefilled whole and cut, and decoded in
batches, are held to `transformers` by the numbers rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.flow import draw_prompts
from support.gpu_jobs import Job, build, spread
from support.numbers import assert_low_precision

pytest.importorskip("transformers", reason="transformers is not installed")
from support.traced_checkpoints import make_traced

pytestmark = pytest.mark.gpu

VOCAB = 512
LENGTHS = {"one": 1, "odd": 17, "many": 200, "long": 700}
ROWS = 120
"""Positions of a prompt that are checked."""

SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 1024,
}
LIMITS = {"max_model_len": 1024, "max_num_seqs": 8, "max_num_batched_tokens": 512}
OPTIONS = {"target": "sm_90", "mode": "full", "dtype": "bf16", **LIMITS}

ALONE: Sequence[Mapping[str, int]] = (
    *({"one": 1}, {"odd": 17}, {"many": 200}),
    *({"long": 512}, {"long": 180}),
)
"""Whole, or cut where the step ends; the last 8 tokens by decode."""
MIXED: Sequence[Mapping[str, int]] = (
    {"odd": 9, "many": 55, "long": 400},
    {"many": 62, "one": 1, "odd": 1, "long": 200},
    {"odd": 6, "many": 75, "long": 96},
)
"""Prefill in chunks beside decode; what is left by decode, in ever smaller batches."""

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "GPTNeoXForCausalLM": {"rotary_pct": 0.5},
    "GPT2LMHeadModel": {"tied": True, "n_inner": 512},
    "Olmo2ForCausalLM": {"tied": True},
    "Cohere2ForCausalLM": {"head_dim": 64, "sliding_window": 130},
}
"""Heads rotated in part; learned positions, weights stored transposed and a tied head; norms over
all heads; windows."""


def job_of(architecture: str, folder: Path) -> Job:
    """A checkpoint with every parameter redrawn, and what is asked of it."""
    fields = {**SIZES, **FAMILIES[architecture]}
    prompts = dict(zip(LENGTHS, draw_prompts(tuple(LENGTHS.values()), VOCAB), strict=True))
    return Job(
        model=make_traced(folder / "model", architecture, dtype="bfloat16", **fields),
        store=folder / "store",
        options=OPTIONS,
        prompts=prompts,
        wanted={n: spread(len(ids), ROWS) for n, ids in prompts.items()},
        runs={"alone": ALONE, "mixed": MIXED},
    )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Job, Path, Any]]:
    """Every family's job, folder and reference; all compile and compute side by side."""
    folders = {name: tmp_path_factory.mktemp(name) for name in FAMILIES}
    found = {name: job_of(name, folder) for name, folder in folders.items()}
    with ThreadPoolExecutor(2 * len(found)) as pool:
        builds = [pool.submit(build, job) for job in found.values()]
        logits = {
            name: pool.submit(job.done_by, "reference_process", folders[name])
            for name, job in found.items()
        }
        for one in builds:
            one.result()
    return {name: (job, folders[name], logits[name].result()[0]) for name, job in found.items()}


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_traced_decoder_keeps_the_numbers_rule(
    architecture: str, jobs: Mapping[str, tuple[Job, Path, Any]]
) -> None:
    job, folder, reference = jobs[architecture]
    played, done = job.done_by("player_process", folder)
    assert done.json["heavy"] == []
    exact, peer = (_joined(reference, kind, job.prompts) for kind in ("float32", "bfloat16"))
    for run in job.runs:
        assert_low_precision(_joined(played, run, job.prompts), exact, peer)


def _joined(arrays: Mapping[str, np.ndarray], run: str, prompts: Mapping[str, Any]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([arrays[f"{run}/{name}"] for name in prompts]))
