"""Graphs that torch.compile made of a decoder, recorded on a real device: minutes of compiling."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded_demo import recorded_demo

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_compiled_demo_is_recorded_and_runs_without_torch(tmp_path: Path, dtype: str) -> None:
    recorded_demo(tmp_path, "stock", dtype)
