"""Dumped graphs: Python that runs by itself and computes what the graph computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from support.toys import rows, traced
from torch import nn

from vcc.engine.compile.dump import Dump
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.script import script
from vcc.engine.passes.version import RULES


def imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem.replace("-", "_"), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(m: Any, x: torch.Tensor) -> Any:
    cut = x[:, 1:].relu() + torch.arange(3, device="cpu")
    return cut.masked_fill(cut > 1, float("inf")), torch.ops.aten.alias(x) * 2


def test_a_dump_is_a_module_that_computes_the_same(tmp_path: Path) -> None:
    graph = traced(model, {"x": rows()}, {"x": {0: "T"}})
    dump = Dump(tmp_path)
    dump.graph("traced", graph)
    apply(graph, PASSES, dumps=dump)
    x = torch.randn(5, 4)
    files = sorted(tmp_path.iterdir())
    on = [one.name for one in PASSES if not RULES[one.name].parts]  # no fusion was asked for
    assert [file.name for file in files] == [
        "00-traced.py",
        *(f"{place:02}-{name}.py" for place, name in enumerate(on, 1)),
    ]
    for file in files:
        module = imported(file)
        assert {name: list(v.shape) for name, v in module.example().items()} == {"x": [6, 4]}
        for got, want in zip(module.Step()(x=x), model(None, x), strict=True):
            assert torch.equal(got, want)


def test_a_dump_reads_well() -> None:
    """Arguments wrapped, no deletions, no line that a reader has to scroll for."""
    many = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
    graph = traced(many, {"input": rows()})
    text = script(graph, "many inputs")
    assert max(map(len, text.splitlines())) <= 100
    assert ";  " not in text


def test_an_operator_of_somebody_else_is_told() -> None:
    graph = traced(lambda m, x: torch.ops.toy.mix(x), {"x": rows()})
    assert "# import the package that defines torch.ops.toy here" in script(graph, "toys")


def test_without_a_folder_only_failures_are_kept(tmp_path: Path, monkeypatch: Any) -> None:
    failing = traced(lambda m, x: x.relu(), {"x": rows()})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dump = Dump(None)
    dump.graph("traced", failing)
    assert list(tmp_path.iterdir()) == []
    left = Path(dump.failed("mine", failing, failing.graph.code))
    assert left.parent.parent == tmp_path
    assert [file.name for file in sorted(left.parent.iterdir())] == [
        "00-before-mine.py",
        "00-mine-failed.txt",
    ]
