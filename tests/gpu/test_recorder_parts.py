"""Eager steps recorded in parts on a device: graphs between breaks answer as whole graphs do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.gpu_jobs import vcc
from support.recorded_demo import LIMITS, compiled, tokens

pytestmark = pytest.mark.gpu

SHAPES = ("--shapes", "1,8,64")
LAYERS = 4
PARTS = LAYERS * 2 + LAYERS + 1
"""Writes into the cache and attention, and what lies before, between and behind layers."""


def target(mode: str, dtype: str) -> tuple[str, ...]:
    return ("--compile", "none", "--target", "sm_90", "--dtype", dtype, "--mode", mode)


def recorded(store: Path, mode: str, dtype: str, *more: object) -> list[dict[str, object]]:
    found = compiled(store, "demo", *target(mode, dtype), *LIMITS, *more).json
    rows: list[dict[str, object]] = found["info"]["recorded"]
    print(json.dumps(rows, indent=1))
    return rows


def played(store: Path, mode: str, dtype: str) -> list[list[int]]:
    return tokens(store, *target(mode, dtype), *SHAPES, *LIMITS, "--require-warm")


def recorded_in_parts(store: Path, mode: str, dtype: str) -> None:
    rows = recorded(store, mode, dtype, *SHAPES)
    mixed = [row for row in rows if not row["uniform"]]
    assert [row["tokens"] for row in mixed] == [64, 8, 1], rows
    assert {row["parts"] for row in mixed} == {PARTS}, rows
    assert {row["parts"] for row in rows if row["uniform"]} <= {1}, rows


def test_a_step_in_parts_answers_as_the_cpu_does(tmp_path: Path) -> None:
    """In fp32, where kernels of two devices choose the same tokens; so do whole graphs."""
    recorded_in_parts(tmp_path / "parts", "piecewise", "fp32")
    cpu = tokens(tmp_path / "cpu", "--compile", "none", "--target", "cpu", "--dtype", "fp32")
    assert played(tmp_path / "parts", "piecewise", "fp32") == cpu


def test_parts_beside_whole_graphs_answer_as_whole_graphs_do(tmp_path: Path) -> None:
    """In bf16: the same kernels in the same order."""
    recorded_in_parts(tmp_path / "parts", "full_and_piecewise", "bf16")
    recorded(tmp_path / "whole", "full", "bf16", *SHAPES)
    whole = played(tmp_path / "whole", "full", "bf16")
    assert played(tmp_path / "parts", "full_and_piecewise", "bf16") == whole


def test_own_splitting_ops_break_a_recorded_step(tmp_path: Path) -> None:
    ops = ("--compilation-config", '{"splitting_ops": ["vcc::paged_attention"]}')
    rows = recorded(tmp_path, "piecewise", "bf16", "--shapes", "64", *ops)
    assert {row["parts"] for row in rows} == {2 * LAYERS + 1}, rows
    done = vcc("inspect", "graph", "demo", "--json", store=tmp_path)
    assert done.code == 0, done.text
    table = done.json["tables"]["table/recorded.64.8.0"]
    kinds = [(one["kind"], one["name"]) for one in table["segments"]]
    assert kinds[:3] == [
        *(("PIECE", "recorded"), ("OP", "vcc::paged_attention"), ("PIECE", "recorded")),
    ], kinds
