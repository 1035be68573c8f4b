"""What forwards write beside products, in a node table: numbers, buckets, filters of one channel.

A relative position bias writes numbers into a table of indices (BEiT), buckets of positions make
tensors of numbers (DeBERTa), and a network for phones ends with filters of one channel over images
of one place (MobileNet).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.interpreted_forward import computed
from support.numbers import assert_states_close
from support.zoos import open_zoo

FACTORY = '''"""Positions, numbers and filters of one channel."""

import torch
from torch.nn import functional as F


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.points = torch.nn.Conv2d(8, 16, 1)
        self.apart = torch.nn.Conv2d(16, 16, 3, stride=2, groups=16)
        self.bias = torch.nn.Parameter(torch.randn(12, 4))

    def table(self):
        one = torch.arange(3)
        index = torch.zeros(4, 4, dtype=torch.int64)
        index[1:, 1:] = one[:, None] - one[None, :] + 2
        index[0, 0:] = 9
        index[0:, 0] = 10
        index[0, 0] = 11
        return self.bias[index.view(-1)].view(4, 4, 4)

    def buckets(self, x):
        places = torch.arange(16, device=x.device) - 8
        near = torch.where(places.abs() < 4, torch.tensor(3).type_as(places), places.abs())
        return torch.log(near / 2) / torch.log(torch.tensor(7 / 2))

    def forward(self, x):
        y = self.apart(F.relu6(self.points(x)))
        return y.flatten(1) + self.buckets(x), y.flatten(1).view(-1, 4, 4) + self.table()[0]


def make():
    torch.manual_seed(0)
    return Small().eval()
'''


@pytest.mark.slow
def test_small_things_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_zoo(tmp_path, monkeypatch, "numbers_zoo", FACTORY)
    from numbers_zoo import make

    module = make()
    generator = torch.Generator().manual_seed(1)
    batches = [{"x": torch.randn(rows, 8, 3, 3, generator=generator)} for rows in (1, 3)]
    (tmp_path / "job").mkdir()
    found = computed(
        tmp_path / "job",
        "numbers_zoo:make",
        module.state_dict(),
        batches,
        inputs=["x=N@1-4x8x3x3"],
    )
    for mine, batch in zip(found, batches, strict=True):
        with torch.no_grad():
            wanted = module(**batch)
        for one, other in zip(mine, wanted, strict=True):
            assert one.shape == other.shape
            assert_states_close(one, other)


LAST = '''"""The values at two places of each row that are looked for in rows of any length."""

import torch


class Last(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(8, 5)

    def forward(self, x, seen):
        places = torch.arange(seen.shape[1], dtype=torch.int32)
        last, most = (places * seen).argmax(-1), x.sum(-1).argmax(-1)
        rows = torch.arange(x.shape[0])
        y = self.out(x)
        return y[rows, last], y[rows, most]


def make():
    torch.manual_seed(0)
    return Last().eval()
'''


@pytest.mark.slow
def test_places_are_looked_for_in_rows_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_zoo(tmp_path, monkeypatch, "last_zoo", LAST)
    from last_zoo import make

    module, generator = make(), torch.Generator().manual_seed(1)
    batches = []
    for rows, length in ((1, 1), (3, 17)):
        seen = torch.randint(0, 2, (rows, length), generator=generator, dtype=torch.int32)
        batches.append({"x": torch.randn(rows, length, 8, generator=generator), "seen": seen})
    (tmp_path / "job").mkdir()
    shapes = ["x=B@1-4xS@1-32x8", "seen=B@1-4xS@1-32:int32"]
    found = computed(tmp_path / "job", "last_zoo:make", module.state_dict(), batches, inputs=shapes)
    for mine, batch in zip(found, batches, strict=True):
        with torch.no_grad():
            wanted = module(**batch)
        for one, other in zip(mine, wanted, strict=True):
            assert_states_close(one, other)
