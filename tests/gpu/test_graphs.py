"""Graphs are the launches: bitwise, in every mode and descriptor, wherever memory lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.flow import draw_prompts
from support.gpu_jobs import Job, build

pytestmark = pytest.mark.gpu

SEQS = 64
LIMITS = {"max_model_len": 512, "max_num_seqs": SEQS, "max_num_batched_tokens": 512}
OPTIONS = {"target": "sm_90", "dtype": "bf16", **LIMITS}
MODES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
REPEATS = 10_000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """64 short prompts; decode in batches of 64, 63, ... 1, so that every graph size is used."""
    folder = tmp_path_factory.mktemp("graphs")
    prompts = {str(i): row for i, row in enumerate(draw_prompts(range(8, 8 + SEQS), 2000))}
    made = Job(
        model="demo",
        store=folder / "store",
        options=OPTIONS | {"mode": "full"},
        prompts=prompts,
        wanted={name: range(6, len(tokens)) for name, tokens in prompts.items()},
        runs={"all": _schedule(prompts)},
    )
    with ThreadPoolExecutor(len(MODES)) as pool:
        jobs = [replace(made, options=OPTIONS | {"mode": mode}) for mode in MODES]
        for one in [pool.submit(build, job) for job in jobs]:
            one.result()
    return made


def _schedule(prompts: Mapping[str, Sequence[int]]) -> list[Mapping[str, int]]:
    """Prefill of 7 tokens each, in two steps; the rest by decode, ever fewer of them."""
    names = list(prompts)
    return [dict.fromkeys(names[:32], 7), dict.fromkeys(names[32:], 7)]


@pytest.fixture(scope="module")
def plain(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, np.ndarray]:
    """Logits of plain launches."""
    folder = tmp_path_factory.mktemp("plain")
    return replace(job, options=OPTIONS | {"mode": "none"}).done_by("player_process", folder)[0]


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_mode_is_bitwise_what_plain_launches_give(
    job: Job, plain: Mapping[str, np.ndarray], mode: str, tmp_path: Path
) -> None:
    other = replace(job, options=OPTIONS | {"mode": mode})
    found, done = other.done_by("player_process", tmp_path)
    assert done.json["counters"]["replays"] > 0
    _same(found, plain)


def test_at_other_addresses_too(job: Job, plain: Mapping[str, np.ndarray], tmp_path: Path) -> None:
    found, done = replace(job, others=2).done_by("player_process", tmp_path)
    assert done.json["boots"] == 3
    _same(found, plain)


def test_ten_thousand_replays_neither_drift_nor_grow(job: Job, tmp_path: Path) -> None:
    _, done = replace(job, runs={}, repeats=REPEATS).done_by("player_process", tmp_path)
    assert done.json["drift"]["same"]
    assert done.json["drift"]["growth"] < 8 << 20


def _same(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    differing = [name for name in wanted if found[name].tobytes() != wanted[name].tobytes()]
    assert not differing, f"{len(differing)} of {len(wanted)} differ: {differing[:5]}"
