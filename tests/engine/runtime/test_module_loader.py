"""A module's weights, constants and outputs: what does not fit is said, not blamed on the store."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.programs import value
from torch import nn

from vcc.cache.errors import ModelError
from vcc.engine.graphs.program import Program
from vcc.engine.models.checkpoint import tensors_in
from vcc.engine.module_run import Output
from vcc.engine.monitor import Ledger
from vcc.engine.runtime import module_loader, torch_loader
from vcc.engine.runtime.module_loader import WeightsContent


class Odd(nn.Linear):
    """Returns what it was given on the side."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), self.side

    side: Any = None


def booting(monkeypatch: pytest.MonkeyPatch, module: nn.Module, file: Path | None = None) -> Any:
    monkeypatch.setattr(module_loader, "made_by", lambda factory: module)
    dtype = SimpleNamespace(torch_name="float32")
    return SimpleNamespace(
        ledger=Ledger(),
        settings=SimpleNamespace(model=SimpleNamespace(dtype=dtype)),
        source=SimpleNamespace(
            factory="m:f",
            name="m:f",
            tensors=tensors_in(file) if file else {},
            is_checkpoint=False,
        ),
    )


WRONG = {"wider": torch.zeros(5, 4), "whole": torch.zeros(4, 4, dtype=torch.int32)}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_of_another_model_is_refused_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Not as damage, for which a good artifact would be set aside."""
    file = tmp_path / "w.safetensors"
    save_file({"weight": WRONG[name], "bias": torch.zeros(4)}, file)
    boot = booting(monkeypatch, nn.Linear(4, 4), file)
    weight = value("weight", "weight", [4, 4])
    for load in (
        lambda: module_loader.load_module_eager(boot),
        lambda: module_loader._weights(boot, Program(1, [], [weight], [], [])),
    ):
        with pytest.raises(ModelError, match="not those of the module") as caught:
            load()
        assert "weight is" in caught.value.why


@pytest.mark.parametrize("side", [None, 3, {"a": torch.zeros(1)}])
def test_an_output_that_is_no_tensor_is_refused(
    monkeypatch: pytest.MonkeyPatch, side: object
) -> None:
    module = Odd(4, 4)
    module.side = side
    forward = module_loader.load_module_eager(booting(monkeypatch, module))
    with pytest.raises(ModelError, match="output 1 of the module is no tensor"):
        forward({"x": torch.zeros(2, 4)})
    with pytest.raises(ModelError, match="the module failed"):
        forward({"y": torch.zeros(2, 4)})


def test_a_number_and_nothing_have_a_digest() -> None:
    assert Output.of("a", torch.tensor(1.0)).shape == ()
    assert Output.of("a", torch.zeros(4, 0)).shape == (4, 0)
    strided = torch.arange(6.0).view(2, 3).t()
    assert Output.of("a", strided).sha256 == Output.of("a", strided.contiguous()).sha256


def test_a_constant_without_elements_is_read() -> None:
    manifest = SimpleNamespace(info={"constants": {"e": {"dtype": "float32", "shape": [0, 8]}}})
    boot: Any = SimpleNamespace(loaded=SimpleNamespace(manifest=manifest, read=lambda name: b""))
    program = Program(1, [], [value("e", "constant", [0, 8])], [], [])
    assert torch_loader.constants_of_artifact(boot, program)["e"].shape == (0, 8)


class Scaled(nn.Module):
    """A module whose buffer is no part of its state."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)


def test_constants_of_another_content_are_a_miss_and_no_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F100: the same source and shapes, but what the factory reads from elsewhere has changed."""
    built = torch.arange(4.0)
    constant = value("table", "constant", [4])
    program = Program(1, [], [constant], [], [])
    for now, fits in ((built.clone(), True), (built + 1, False), (built.double(), True)):
        boot = booting(monkeypatch, Scaled(now))
        boot.loaded = SimpleNamespace(
            manifest=SimpleNamespace(
                info={"constants": {"table": {"dtype": "float32", "shape": [4]}}}
            ),
            read=lambda name: built.numpy().tobytes(),
        )
        if fits:
            assert module_loader._weights(boot, program) == {}
            continue
        with pytest.raises(WeightsContent, match="another content of m:f") as error:
            module_loader._weights(boot, program)
        assert "buffer table" in error.value.why
        assert "vcc cache rm" in error.value.hint
