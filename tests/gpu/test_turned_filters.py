"""Filters that are turned when they are loaded, on a device: of a factory, in both orders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.filters_factory import FACTORY
from support.gpu_jobs import vcc
from support.numbers import assert_fp32_close
from support.zoos import open_zoo

import vcc as library

pytestmark = pytest.mark.gpu

TARGET = "sm_90"


@pytest.mark.parametrize("shape", ["x=2x32x5x3", "x=N@1-4x32x20x24"])
def test_filters_of_a_factory_are_turned_at_its_load(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_zoo(tmp_path, monkeypatch, "filters_zoo", FACTORY)
    store, words = tmp_path / "store", ("filters_zoo:make", "--shape", shape, "--target", TARGET)
    done = vcc("compile", *words, store=store)
    assert done.code == 0, done.text[-4000:]
    ran = vcc("run", *words, "--require-warm", "--json", store=store)
    assert ran.code == 0, ran.text[-4000:]
    asked = {"shapes": [shape], "target": TARGET, "cache_dir": store, "require_warm": True}
    forward = library.load_forward("filters_zoo:make", **asked, golden="all")
    from filters_zoo import make

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = make()
    for count in (2,) if shape.startswith("x=2") else (1, 3, 4):
        sizes = (5, 3) if shape.startswith("x=2") else (20, 24)
        x = torch.randn(count, 32, *sizes, generator=torch.Generator().manual_seed(count))
        with torch.no_grad():
            wanted = module(x)
        found = forward({"x": x})
        for index, one in enumerate(wanted):
            assert_fp32_close(found[f"output_{index}"], one)
