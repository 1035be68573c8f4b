"""Products of fp8 values in the GEMM store on a real device: recorded, exact, replayed, played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import gpu_jobs
from support.fp8_checkpoints import fp8_logits, make_fp8_checkpoint
from support.gpu_jobs import gemm_process, vcc
from support.numbers import assert_quantised
from support.played import Played

from vcc.engine.tune.job import Answer, Job
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmStore

pytestmark = pytest.mark.gpu

FP8 = "float8_e4m3fn"
WIDTHS = ((6144, 4096), (4096, 14336), (320, 192))
"""n, k of an 8B decoder, and of something small and odd."""

ROWS = (1, 3, 16, 17, 64, 256, 1000)
CORE = tuple(
    GemmShape(m, n, k, FP8, False, "bfloat16", scales)
    for n, k in WIDTHS
    for m in ROWS
    for scales in ("tensor", "rows")
)
"""What a step of a model in bf16 without biases multiplies: all of it must be there."""

BLOCKS = tuple(
    GemmShape(m, n, k, FP8, has_c, out, "blocks")
    for n, k in (*WIDTHS[:2], (320, 512), (1536, 8960))
    for m in (4, 16, 64, 256, 1000)
    for out, has_c in (("bfloat16", False), ("bfloat16", True), ("float16", False))
)
"""The same with scales of blocks, which only sm_90 has."""

OTHERS = tuple(
    GemmShape(m, 320, 192, FP8, has_c, out, scales)
    for m in (5, 256)
    for scales in ("tensor", "rows")
    for out, has_c in (
        ("bfloat16", True),
        ("float16", False),
        ("float16", True),
        ("float32", False),
    )
)


@pytest.fixture(scope="module", autouse=True)
def device_has_fp8() -> None:
    """Skips where cuBLASLt has no product of fp8."""
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this device has no fp8")


def wanted() -> tuple[GemmShape, ...]:
    """What must be there on this device."""
    return (*CORE, *(BLOCKS if torch.cuda.get_device_capability() == (9, 0) else ()))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A store with all shapes, and what recording them said."""
    root = tmp_path_factory.mktemp("fp8") / "store"
    gemm_process(Job(root, (*wanted(), *OTHERS)), root.parent, "record", "answer.json", "maps")
    answer = Answer.of_dict(json.loads((root.parent / "answer.json").read_text()))
    for one in answer.refused:
        print(f"refused: {one.shape}: {one.why}")
    print(f"{answer.recorded} of cuBLASLt {answer.cublaslt} in {answer.seconds:.2f} s")
    return root, answer


def test_products_are_recorded_and_exact(recorded: tuple[Path, Answer]) -> None:
    """The self-test holds results against arithmetic; what is refused is named with its status."""
    _, answer = recorded
    assert answer.self_test is not None, [f"{one.shape}: {one.why}" for one in answer.refused]
    assert answer.self_test.passed, answer.self_test.why
    lacking = [f"{one.shape}: {one.why}" for one in answer.refused if one.shape in wanted()]
    assert not lacking, "\n".join(lacking)
    assert all(
        "CUBLAS_STATUS" in one.why or "none" in one.why or "addresses" in one.why
        for one in answer.refused
    )


def test_a_process_without_cublaslt_gives_its_bits_at_other_addresses(
    recorded: tuple[Path, Answer], tmp_path: Path
) -> None:
    root, answer = recorded
    refused = {one.shape for one in answer.refused}
    tried = tuple(one for one in (*wanted(), *OTHERS) if one not in refused)
    for words in (("reference", root, "a.npz"), ("replay", root, "b.npz")):
        gemm_process(Job(root, tried), tmp_path, *words)
    with np.load(tmp_path / "a.npz") as one, np.load(tmp_path / "b.npz") as other:
        wrong = [name for name in one.files if not np.array_equal(one[name], other[name])]
    assert not wrong, "\n".join(wrong)
    assert len(GemmStore(root).entries(answer.gpu)) == len(tried)


@dataclass(frozen=True)
class Tuned(Played):
    """A model whose products are recorded between build and play; without times the store's win."""

    def between(self, job: gpu_jobs.Job) -> None:
        done = vcc("tune", self.model, "--no-measure", "--json", store=job.store)
        assert done.code == 0, done.text[-4000:]
        (found,) = done.json["artifacts"]
        print(json.dumps(found["answer"]["refused"]), json.dumps(found["unstorable"]))
        assert found["answer"]["self_test"]["passed"], found["answer"]["self_test"]

    def told(self, said: Mapping[str, Any]) -> None:
        products = said["products"]
        routes = {(one["route"], one["scales"], one["c"]) for one in products if one["scales"]}
        print(sorted(routes))
        fp8 = [one for one in products if one["scales"] and not one["c"]]
        assert fp8, "no product of fp8 could come from the store"
        assert all(one["route"] == "store" for one in fp8), routes


STORED_BLOCKS: Mapping[str, Any] = {"hidden_size": 512, "intermediate_size": 1408, "head_dim": 128}
"""Of a model whose products by block are all in the store, one with scales that are spread."""


@pytest.mark.parametrize(
    ("arch", "layout"),
    [
        *(("llama", "channel-token"), ("qwen3", "tensor-token")),
        *(("llama", "tensor-static"), ("qwen2", "channel-token")),
        *(("qwen3", "channel-static"), ("llama", "block")),
    ],
)
def test_a_played_model_whose_products_come_from_the_store_keeps_to_the_rule(
    arch: str, layout: str, tmp_path: Path
) -> None:
    major, minor = torch.cuda.get_device_capability()
    if layout == "block" and (major, minor) != (9, 0):
        pytest.skip("cuBLASLt has products by block on sm_90 only")
    sizes = STORED_BLOCKS if layout == "block" else {}
    made = make_fp8_checkpoint(tmp_path / "model", arch, layout, **sizes)
    played = Tuned(
        made, f"sm_{major}{minor}", lambda ids, dtype: fp8_logits(made, layout, ids, dtype)
    )
    played.check(tmp_path, assert_quantised)
