"""Eager steps recorded in parts on a device: graphs between breaks answer as whole graphs do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.gpu_jobs import vcc
from support.recorded_demo import LIMITS, compiled, tokens

pytestmark = pytest.mark.gpu

SHAPES = ("--shapes", "1,2,4,8,64")
LAYERS = 4


def recorded(store: Path, mode: str, dtype: str, *more: object) -> list[dict[str, object]]:
    words = ("--compile", "none", "--target", "sm_90", "--dtype", dtype, "--mode", mode)
    found = compiled(store, "demo", *words, *SHAPES, *LIMITS, *more).json
    rows: list[dict[str, object]] = found["info"]["recorded"]
    print(json.dumps(rows, indent=1))
    return rows


def played(store: Path, mode: str, dtype: str) -> list[list[int]]:
    words = ("--compile", "none", "--target", "sm_90", "--dtype", dtype, "--mode", mode)
    return tokens(store, *words, *SHAPES, *LIMITS, "--require-warm")


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("mode", ["piecewise", "full_and_piecewise"])
def test_steps_in_parts_answer_as_whole_graphs_do(tmp_path: Path, mode: str, dtype: str) -> None:
    """The same kernels in the same order: tokens are equal, in fp32 those of the CPU too."""
    rows = recorded(tmp_path / "parts", mode, dtype)
    mixed = [row for row in rows if not row["uniform"]]
    assert [row["tokens"] for row in mixed] == [64, 8, 4, 2, 1]
    # Writes into the cache and attention, and what lies before, between and behind layers.
    assert {row["parts"] for row in mixed} == {LAYERS * 2 + LAYERS + 1}
    assert {row["parts"] for row in rows if row["uniform"]} <= {1}
    recorded(tmp_path / "whole", "full", dtype)
    here = played(tmp_path / "parts", mode, dtype)
    assert here == played(tmp_path / "whole", "full", dtype)
    if dtype == "fp32":
        cpu = ("--compile", "none", "--target", "cpu", "--dtype", dtype)
        assert here == tokens(tmp_path / "cpu", *cpu)


def test_own_splitting_ops_break_a_recorded_step(tmp_path: Path) -> None:
    ops = '{"splitting_ops": ["vcc::paged_attention"]}'
    rows = recorded(tmp_path, "piecewise", "bf16", "--compilation-config", ops)
    assert {row["parts"] for row in rows} == {2 * LAYERS + 1}
    done = vcc("inspect", "graph", "demo", "--json", store=tmp_path)
    assert done.code == 0, done.text[-3000:]
    table = done.json["tables"]["table/recorded.64.8.0"]
    kinds = [(one["kind"], one["name"]) for one in table["segments"]]
    assert kinds[:3] == [
        *(("PIECE", "recorded"), ("OP", "vcc::paged_attention"), ("PIECE", "recorded")),
    ]
