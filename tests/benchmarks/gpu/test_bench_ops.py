"""bench_ops.py times what the project has limits for, at sizes that memory bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from vcc.engine.ops.cuda.table import BUILDERS

SCRIPT = Path(__file__).with_name("bench_ops.py")


def dry(*words: str) -> list[dict[str, Any]]:
    """What would be timed."""
    command = [sys.executable, str(SCRIPT), "--dry", "--tokens", "2048", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_operators_that_are_named_are_timed_alone() -> None:
    timed = dry("--ops", "kv_write", "rms_norm_quant_dynamic")
    assert [(one["op"], one["form"]) for one in timed] == [
        ("rms_norm_quant_dynamic", "row"),
        ("rms_norm_quant_dynamic", "block"),
        ("kv_write", ""),
    ]


def test_every_fused_operator_is_timed_above_8_mb() -> None:
    timed = dry()
    routers = {"topk_softmax", "topk_sigmoid"}  # tiny, bound by nothing but their launch
    same = {"gelu_and_mul_quant", "gelu_and_mul_quant_dynamic"}  # as silu's, with another act
    assert {one["op"] for one in timed} == set(BUILDERS) - routers - same
    assert all(one["bytes"] > 8 << 20 for one in timed)
    norm = next(one for one in timed if one["op"] == "rms_norm")
    assert norm["bytes"] == 2 * (2 * 2048 * 4096 + 4096)
