"""Stock torch.compile gets what the configuration says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vcc.engine.config.modes import Backend
from vcc.engine.config.types import CompilationConfig
from vcc.engine.runtime.stock import stock_compiled


@pytest.mark.parametrize(
    ("config", "backend", "options"),
    [
        (CompilationConfig(), "inductor", None),
        (CompilationConfig(backend=Backend.EAGER), "eager", None),
        (
            CompilationConfig(inductor_config=(("max_autotune", True),)),
            "inductor",
            {"max_autotune": True},
        ),
        (
            CompilationConfig(use_inductor_graph_partition=True),
            "inductor",
            {"graph_partition": True},
        ),
    ],
)
def test_options_reach_torch_compile(
    monkeypatch: pytest.MonkeyPatch,
    config: CompilationConfig,
    backend: str,
    options: dict[str, Any] | None,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(torch, "compile", lambda module, **said: given.update(said) or module)
    module = nn.Identity()
    assert stock_compiled(module, config) is module
    assert given == {"dynamic": True, "backend": backend, "options": options}


def test_sizes_vary_without_a_compile_for_each() -> None:
    module = stock_compiled(nn.Linear(4, 4), CompilationConfig(backend=Backend.EAGER))
    for rows in (2, 3, 7):
        assert module(torch.ones(rows, 4)).shape == (rows, 4)
