"""Attention of a factory's module for a GPU, by Triton's interpreter: operands in any layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.interpreted_forward import computed
from support.numbers import assert_states_close

FACTORY = '''"""Attention whose operands lie in many ways; what it gives is returned as it lies."""

import torch
from torch.nn import functional as F

attend = F.scaled_dot_product_attention


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(24, 3 * 48)
        self.bias = torch.nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x, seen):
        rows, tokens = x.shape[0], x.shape[1]
        q, k, v = self.qkv(x).view(rows, tokens, 3, 4, 12).permute(2, 0, 3, 1, 4)
        keys = seen[:, None, None].expand(rows, 4, tokens, tokens)
        one = attend(q, k, v, keys)
        distance = torch.arange(tokens, device=x.device)
        added = (distance[:, None] - distance[None]).float() * self.bias
        shared = k[:, :1].expand(rows, 4, tokens, 12)
        two = attend(q.relu(), shared, v, added, scale=0.2)
        three = attend(q, k[:, ::2], v[:, 1::2, :, :7], is_causal=True, enable_gqa=True)
        column = attend(q[:, 0], k[:, 0], x.transpose(1, 2).contiguous().transpose(1, 2))
        wide = attend(x.repeat(1, 1, 6), x.repeat(1, 1, 6), x)
        y = (one + two).transpose(1, 2).reshape(rows, tokens, 48)
        return y, two, three, column, wide


def make():
    torch.manual_seed(0)
    return Attending().eval()
'''


@pytest.mark.slow
def test_operands_are_read_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also sizes that vary, and heads that the kernel does not take beside those that it does."""
    (tmp_path / "attending_zoo.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    from attending_zoo import make

    module = make()
    generator = torch.Generator().manual_seed(0)
    batches = []
    for rows, tokens in ((1, 2), (2, 35)):
        seen = torch.rand(rows, tokens, generator=generator) > 0.4
        seen[:, 0] = True
        batches.append({"x": torch.randn(rows, tokens, 24, generator=generator), "seen": seen})
    (tmp_path / "job").mkdir()
    shapes = ["x=B@1-3xS@2-40x24", "seen=B@1-3xS@2-40:bool"]
    weights = module.state_dict()
    found = computed(tmp_path / "job", "attending_zoo:make", weights, batches, inputs=shapes)
    for mine, batch in zip(found, batches, strict=True):
        with torch.no_grad():
            wanted = module(**batch)
        for one, other in zip(mine, wanted, strict=True):
            assert one.shape == other.shape
            assert_states_close(one, other)
