"""What tests on a device launch: every operator, bound by name; on the driver's double."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support.fake_cuda import library
from support.sources import ROOT

from vcc.engine import native
from vcc.engine.ops.schemas import OPS

pytestmark = pytest.mark.skipif(
    native.library("vcc_abi") is None, reason="built without a compiler"
)

UNTRIED = frozenset({"lora_shrink", "lora_expand", "scaled_linear", "scaled_experts"})
"""Operators whose device tests stand elsewhere."""


def told(target: str) -> dict[str, Any]:
    paths = {"VCC_LIBCUDA": str(library()), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "support.built_dry", target],
        env=os.environ | paths,
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    print("seed", found["seed"])
    return found


def test_device_tests_launch_every_operator() -> None:
    found = told("sm_90")
    names = {op for family in found["tried"].values() for op in family}
    assert {op.name for op in OPS} - names <= UNTRIED
    assert found["launches"] > 60
    assert found["bound"] == {"name": "fused_add_rms_norm", "grid": [3, 1, 1], "same": True}


def test_a_device_without_fp8_is_tried_without_it() -> None:
    found = told("sm_86")["tried"]
    assert not [op for family in found.values() for op in family if "quant" in op]
