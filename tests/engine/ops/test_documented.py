"""docs/ops.md: its tables are made from the code, and its op is made exactly as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.op_reference import PAGE, rewritten

from vcc.engine.config.custom_ops import choose_ops
from vcc.engine.config.modes import Backend, CompileMode
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.layers import RMSNorm
from vcc.engine.ops.names import KNOWN_OPS

TEXT = PAGE.read_text(encoding="utf-8")


def block(name: str, language: str) -> str:
    pattern = rf"<!-- {name} -->\n```{language}\n(.*?)```\n<!-- end {name} -->"
    found = re.search(pattern, TEXT, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_the_tables_are_those_of_the_code() -> None:
    assert rewritten(TEXT) == TEXT, (
        "PYTHONPATH=tests python -m support.op_reference makes them anew"
    )


def test_kernel_surface_operator_and_layer_are_short() -> None:
    assert len((block("kernel", "cpp") + block("op", "python")).splitlines()) < 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, and its kernel built by the page's command."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build the page's kernel with")
    place = tmp_path_factory.mktemp("ops")
    (place / "soft_cap.cpp").write_text(block("kernel", "cpp"))
    (place / "my_ops.py").write_text(block("op", "python"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-e", "-c", block("build", "sh")],
        cwd=place,
        env={**os.environ, "PATH": path},
        check=True,
        timeout=300,
    )
    return place


def test_the_op_of_the_page_runs_its_kernel_and_its_native_body(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    from my_ops import SoftCap

    layer = SoftCap(5.0, choice=OpChoice(frozenset({"soft_cap"})))
    assert layer.method == "forward_cpu"
    x = 10 * torch.randn(8, 3)
    torch.testing.assert_close(layer(x.T), SoftCap(5.0)(x.T))
    assert layer.refusals == []
    assert torch.equal(layer(x.bfloat16()), SoftCap(5.0)(x.bfloat16()))
    assert layer.refusals == ["soft_cap: cpu does not take bfloat16"]
    torch.library.opcheck(torch.ops.mine.soft_cap.default, (x, 5.0))
    dims = {"args": ({0: torch.export.Dim("t", min=1, max=64)},)}
    program = torch.export.export(layer, (x,), dynamic_shapes=dims, strict=False)
    assert torch.ops.mine.soft_cap.default in {n.target for n in program.graph.nodes}
    sys.modules.pop("my_ops").library._destroy()


def test_the_class_of_the_page_is_built_in_the_layers_place() -> None:
    (source,) = re.findall(r"```python\n# fast_norm.py\n(.*?)```", TEXT, re.DOTALL)
    made: dict[str, Any] = {}
    exec(compile(source, "fast_norm.py", "exec"), made)
    layer = RMSNorm(8, choice=OpChoice().replacing("RMSNorm", made["FastNorm"]))
    assert type(layer) is made["FastNorm"]


def test_every_token_of_the_page_is_read() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", TEXT.split("## The grammar")[1].split("## The")[0], re.M)
    tokens = [token for row in rows for token in re.findall(r"`([^`]+)`", row)]
    assert len(tokens) == 6
    for token in tokens:
        choose_ops((token,), KNOWN_OPS, CompileMode.VCC_COMPILE, Backend.INDUCTOR)
