"""Node tables on the CPU: what each node computes, and that no address goes unseen."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.sources import ROOT

from vcc.engine.config.environment import interpreter_environment


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases of tests/support/interpreted_cases.py, run in one process."""
    environment = interpreter_environment(tmp_path_factory.mktemp("triton"))
    done = subprocess.run(
        [sys.executable, "-m", "support.interpreted_cases"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT / "tests",
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_kernel_runs_over_its_grid_and_leaves_the_rest_poisoned(found) -> None:
    assert found["kernel"]["value"] == [2, 4, 6, 8, 10, 12, None, None]


def test_pointers_take_their_offsets_and_numbers_their_expressions(found) -> None:
    assert found["offsets"]["value"] == [6, 8, None, None]


def test_a_generated_kernel_runs_without_its_device(found) -> None:
    wanted = [math.tanh(x) + math.exp(x) + x**x for x in (1, 2, 3)]
    assert found["generated"]["value"] == pytest.approx(wanted, rel=1e-6)


def test_matrix_products_add_c_where_they_have_one(found) -> None:
    plain = [5, 14, 14, 50]
    assert found["gemm"]["value"] == [[100 + x for x in plain], plain]


def test_fills_have_rows_and_copies_move_bytes(found) -> None:
    assert found["fills_and_copies"]["value"] == [1, 1, 2, 3, 1, 1, None]


def test_the_shape_of_a_step_decides_which_nodes_run(found) -> None:
    shapes = found["shapes"]["value"]
    assert shapes["mixed"] == [["piece"], [2, None, None, None, None, None]]
    assert shapes["uniform"] == [["piece"], [2, 4, None, None, None, None]]
    assert shapes["loop"] == [["advance", "piece", "sample"], [2, 4, 2, 4, 2, 4]]


@pytest.mark.parametrize(
    ("case", "what", "why"),
    [
        ("reads_outside", "double (node 0 of piece) reads byte 24 of IO", "has 24 bytes"),
        ("writes_outside", "writes byte 384 of WORKSPACE", "has 384 bytes"),
        ("writes_a_region_that_it_may_read", "writes byte 0 of IO", "no pointer"),
        ("touches_a_region_without_a_pointer", "of WORKSPACE", "no pointer"),
        ("null_pointer", "double (node 0 of piece) writes byte", "bytes"),
        ("no_source", "kernel double has no source", "this build"),
        ("a_parameter_short", "is not given parameter n", ""),
        ("a_number_for_a_pointer", "x is *fp32 and is given a I32", ""),
        ("a_wide_number_for_a_narrow_one", "n is i32 and is given a I64", ""),
        ("an_empty_grid", "has grid (0, 1, 1)", "allowed"),
        ("an_odd_address", "x is not at a multiple of 4", ""),
    ],
)
def test_what_a_table_does_wrong_is_named(found, case: str, what: str, why: str) -> None:
    error = found[case]["error"]
    assert what in error["what"]
    assert why in error["why"]


def test_an_access_outside_is_a_negative_answer(found) -> None:
    assert found["reads_outside"]["error"]["exit"] == 1


def test_the_environment_of_a_check_interprets_and_keeps_caches_apart(tmp_path: Path) -> None:
    made = interpreter_environment(tmp_path)
    assert made["TRITON_INTERPRET"] == "1"
    assert made["TRITON_CACHE_DIR"].startswith(str(tmp_path))
