"""Low-rank adapters in Triton, by its interpreter; bf16 is left to the device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.sources import ROOT


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_adapters_by_the_interpreter(dtype: str) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "support.lora_cases", dtype],
        env=environment,
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
