"""Inductor's choice of kernels that share a launch, and what the shim takes out of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import sympy
from torch._inductor.codegen import triton_combo_kernel

from vcc.engine.torch_shim.combined import varying_sums_apart


def node(length: Any, *, reduces: bool = True) -> Any:
    features = SimpleNamespace(is_reduction=lambda: reduces)
    return SimpleNamespace(group=("cuda", (4, length)), info=SimpleNamespace(features=features))


def test_combined_varying_sums_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_custom_combo_kernel_horizontal_partition_algorithm"
    monkeypatch.setattr(triton_combo_kernel, name, lambda nodes, *_: [list(nodes)])
    before = getattr(triton_combo_kernel, name)
    size = sympy.Symbol("s0", positive=True, integer=True)
    fixed, varying, other = node(sympy.Integer(64)), node(size), node(2 * size)
    plain = node(size, reduces=False)
    with varying_sums_apart():
        partition = getattr(triton_combo_kernel, name)
        nodes = [fixed, varying, plain, other]
        found = partition(nodes, None, Known(nodes))
        assert found == [[fixed, plain], [varying], [other]]
        assert partition([varying], None, Known([varying])) == [[varying]]
    assert getattr(triton_combo_kernel, name) is before
    with pytest.raises(ValueError, match="inside"), varying_sums_apart():
        raise ValueError("inside")
    assert getattr(triton_combo_kernel, name) is before


class Known(dict[Any, Any]):
    """What Inductor knows of each node; these have no hash."""

    def __init__(self, nodes: list[Any]) -> None:
        super().__init__()
        self.nodes = nodes

    def __getitem__(self, key: Any) -> Any:
        return next(one.info for one in self.nodes if one is key)
