"""A result that is a product and a bias is rounded once, as torch rounds it, by the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.interpreted_forward import CONTENT, computed
from support.zoos import open_zoo
from torch.nn import functional as F

from vcc.engine.graphs.planner.content import read
from vcc.engine.graphs.table.decode import decode

HEADS = '''"""A linear layer inside, and one that gives the result."""

import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 40)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


def make():
    torch.manual_seed(0)
    return Heads().eval()
'''


def test_a_result_is_rounded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_zoo(tmp_path, monkeypatch, "heads_zoo", HEADS)
    from heads_zoo import make

    module = make().bfloat16()
    x = torch.randn(3, 2, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    (tmp_path / "job").mkdir()
    options = {"inputs": ["x=N@1-4x2x64"], "dtype": "bf16"}
    ((found,),) = computed(
        tmp_path / "job", "heads_zoo:make", module.state_dict(), [{"x": x}], **options
    )
    # What lies inside is a product that is rounded before its bias, as Inductor computes it.
    product = F.linear(x.float(), module.inner.weight.float()).bfloat16().float()
    inner = torch.relu(product + module.inner.bias.float()).bfloat16().float()
    outer = module.outer.weight.float(), module.outer.bias.float()
    assert found.dtype is torch.bfloat16
    once = F.linear(inner, *outer).bfloat16()
    twice = (F.linear(inner, outer[0]).bfloat16().float() + outer[1]).bfloat16()
    assert (found != once).float().mean() < 0.02  # sums in another order, at a tie
    assert (twice != once).float().mean() > 0.2
    table = decode(read(tmp_path / "job" / CONTENT).steps[0].table)
    assert sum(node.kind.name == "GEMM" for node in table.nodes) == 1
