"""Row M1: what a branch on a size does in each compile mode."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from support.branching import Branch, Fixed
from torch import Tensor, nn

import vcc
from vcc.cache.errors import CompileError

LONG, SHORT = torch.arange(12.0), torch.tensor([1.0, 2.0, 3.0])
ONCE = {"mode": "DYNAMO_TRACE_ONCE", "backend": "eager"}


def compiled(store: Path, compilation: dict[str, Any], of: type[nn.Module] = Branch) -> Any:
    return vcc.compile(
        of().eval(),
        dynamic_arg_dims={"x": 0},
        sizes={"T": (1, 64)},
        compilation=compilation,
        cache_dir=store,
    )


def test_m1_traced_once_the_first_calls_branch_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """M1: first call with 12, then [1, 2, 3]: the first trace's branch, [2, 4, 6]; it is told."""
    with caplog.at_level(logging.INFO, "vcc"):
        model = compiled(tmp_path, ONCE)
        assert torch.equal(model(LONG), LONG * 2)
    assert torch.equal(model(SHORT), torch.tensor([2.0, 4.0, 6.0]))
    assert any(
        "traced once" in record.message and "branching.py" in record.message
        for record in caplog.records
    )
    assert len(model.artifacts) == 1


def test_m1_another_first_call_is_another_trace(tmp_path: Path) -> None:
    compiled(tmp_path, ONCE)(LONG)
    other = compiled(tmp_path, ONCE)
    assert torch.equal(other(SHORT), SHORT * 10)
    assert torch.equal(other(LONG), LONG * 10)


def test_m1_a_warm_start_needs_no_trace(tmp_path: Path) -> None:
    compiled(tmp_path, ONCE)(LONG)
    again = compiled(tmp_path, ONCE)
    assert torch.equal(again(LONG), LONG * 2)
    assert (again.counters["traces"], again.counters["compiles"]) == (0, 0)


def test_m1_stock_compiles_anew_and_gives_the_other_branch(tmp_path: Path) -> None:
    """M1: STOCK recompiles."""
    model = compiled(tmp_path, {"mode": "STOCK_TORCH_COMPILE", "backend": "eager"})
    assert torch.equal(model(LONG), LONG * 2)
    assert torch.equal(model(SHORT), SHORT * 10)
    assert model.artifacts == ()


@pytest.mark.parametrize("mode", ["VCC_COMPILE", "NO_COMPILATION"])
def test_a_branch_is_right_or_refused_with_its_line(tmp_path: Path, mode: str) -> None:
    model = compiled(tmp_path, {"mode": mode, "backend": "eager"})
    if mode == "NO_COMPILATION":
        assert torch.equal(model(LONG), LONG * 2)
        assert torch.equal(model(SHORT), SHORT * 10)
        return
    with pytest.raises(CompileError, match=r"narrowed(.|\n)*branching\.py"):
        model(LONG)


def test_a_trace_that_holds_for_one_size_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="tracing fixed the size T"):
        compiled(tmp_path, ONCE, Fixed)(LONG)
    model: Tensor = compiled(tmp_path, ONCE, Fixed)(SHORT)
    assert torch.equal(model, SHORT * 10)
