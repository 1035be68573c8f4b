"""Filters that are turned when they are loaded, and those that cannot be, by Triton's interpreter.

One is read twice in the same way, one also by something that is no convolution, one is computed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.filters_factory import FACTORY
from support.interpreted_forward import CONTENT, computed
from support.numbers import assert_fp32_close
from support.sources import ROOT
from support.zoos import open_zoo

from vcc.engine.config.environment import interpreter_environment
from vcc.engine.graphs.planner.content import read


@pytest.mark.parametrize(
    "shape", ["x=N@1-4x32x5x3", pytest.param("x=2x32x5x3", marks=pytest.mark.slow)]
)
def test_filters_are_read_as_they_lie(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the batch varies, images and filters are laid out in one launch, by the larger grid."""
    open_zoo(tmp_path, monkeypatch, "filters_zoo", FACTORY)
    from filters_zoo import make

    module = make()
    x = torch.randn(2, 32, 5, 3, generator=torch.Generator().manual_seed(0))
    (tmp_path / "job").mkdir()
    state = module.state_dict()
    options = {"inputs": [shape]}
    (found,) = computed(tmp_path / "job", "filters_zoo:make", state, [{"x": x}], **options)
    with torch.no_grad():
        wanted = module(x)
    for mine, right in zip(found, wanted, strict=True):
        assert_fp32_close(mine, right)
    content = tmp_path / "job" / CONTENT
    bindings = {"twice.weight.channels_last": 'channels_last(tied("twice.weight"))'}
    assert read(content).info["turned"] == bindings
    _check_goldens(content)


def _check_goldens(content: Path) -> None:
    """They draw the filters as they lie."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.interpreted_goldens", str(content)],
        env=interpreter_environment(content),
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    wrong = json.loads(done.stdout)
    assert set(wrong.values()) == {None}, wrong
