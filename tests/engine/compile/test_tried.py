"""`--compile none` of a factory: what a run would stumble over is told by the build."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vcc.cli import main

MODELS = """
import torch
from functools import cache
from torch import nn

class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)
        self.register_buffer("scale", torch.ones(4), persistent=False)
    def forward(self, x):
        return self.inner(x) * self.scale, x

class Branch(Good):
    def forward(self, x):
        return x if x.sum() > 0 else -x

class Side(Good):
    def forward(self, x):
        return {"y": x}

@cache
def good(): return Good()
def branch(): return Branch()
def side(): return Side()
def fails(): raise OSError("no such file: weights.bin")
def no_module(): return 3
"""


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`vcc compile tried_models:NAME --compile none`: its code and its JSON."""
    (tmp_path / "tried_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCC_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.delitem(sys.modules, "tried_models", raising=False)

    def run(name: str, *words: str) -> tuple[int, Any]:
        command = ["compile", f"tried_models:{name}", "--compile", "none", "--dtype", "fp32"]
        capsys.readouterr()
        code = int(main.run([*command, "--json", *words]))
        return code, json.loads(capsys.readouterr().out)

    yield run
    sys.modules.pop("tried_models", None)


def test_a_module_that_works_is_stored_and_runs_on_its_own_weights(compiled, capsys) -> None:
    """Also where the factory keeps what it made: no fake tensor is left in it."""
    code, found = compiled("good", "--shape", "x=1-3x8")
    assert (code, found["info"]["kind"]) == (0, "module")
    words = ["run", "tried_models:good", "--compile", "none", "--dtype", "fp32"]
    assert main.run([*words, "--shape", "x=1-3x8", "--require-warm", "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert [one["shape"] for one in outputs] == [[3, 4], [3, 8]]


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("fails", "x=2x8", "no such file: weights.bin"),
        ("no_module", "x=2x8", "gives no nn.Module"),
        ("missing", "x=2x8", "has no missing"),
        ("good", "x=2x7", "(declared inputs: x=2x7)"),
        ("good", "y=2x8", "unexpected keyword argument 'y'"),
        ("side", "x=2x8", "output 0 of the module is no tensor"),
    ],
)
def test_a_fault_of_the_module_is_told_by_the_build(compiled, name, shape, said) -> None:
    code, answer = compiled(name, "--shape", shape)
    error = answer["error"]
    assert (code, error["id"]) == (2, "MODEL")
    assert said in f"{error['what']} {error['why']}"


def test_undeclared_inputs_are_told_with_the_option(compiled) -> None:
    code, answer = compiled("good")
    assert code == 2
    assert "--shape x=8x128" in answer["error"]["hint"]


def test_what_only_data_decides_is_left_to_the_run_and_said(compiled, capsys, tmp_path) -> None:
    code, _ = compiled("branch", "--shape", "x=2x8")
    assert code == 0
    words = ["compile", "tried_models:branch", "--compile", "none", "--shape", "x=3x8"]
    main.run(words)
    assert "the forward was not tried, it depends on data" in capsys.readouterr().err
