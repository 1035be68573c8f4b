"""Models and settings that cannot be built: refused by name, with the line where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vcc
from vcc.cache.errors import CompileError, ConfigError


class Decides(nn.Module):
    """A branch on data, where a graph would break."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x


class Chooses(nn.Module):
    """A size that depends on data."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0] * 2


class Reads(nn.Module):
    """A number that Python reads from a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.max().item()


class Counts(nn.Module):
    """Writes to a buffer in place, which is kept, or assigns it anew, which is not."""

    def __init__(self, anew: bool) -> None:
        super().__init__()
        self.anew = anew
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.anew:
            self.seen = self.seen + 1
        else:
            self.seen.add_(1)
        return x + self.seen


def called(store: Path, module: nn.Module, **compilation: Any) -> Tensor:
    model = vcc.compile(
        module.eval(),
        dynamic_arg_dims={"x": 0},
        sizes={"T": (1, 64)},
        compilation={"backend": "eager", **compilation},
        cache_dir=store,
    )
    result: Tensor = model(torch.linspace(-1.0, 2.0, 12))
    return result


@pytest.mark.parametrize(
    ("kind", "line"),
    [(Decides, "if x.sum() > 0:"), (Reads, ""), (Chooses, "")],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("mode", ["VCC_COMPILE", "DYNAMO_TRACE_ONCE"])
def test_what_depends_on_data_is_refused(
    tmp_path: Path, kind: type[nn.Module], line: str, mode: str
) -> None:
    with pytest.raises(CompileError) as caught:
        called(tmp_path, kind(), mode=mode)
    assert line in caught.value.why
    assert caught.value.hint
    said = f"{caught.value.what} {caught.value.why}"
    assert "test_bad_models.py" in said or "depends on data" in said


def test_a_buffer_is_written_in_place_or_the_model_is_refused(tmp_path: Path) -> None:
    module = Counts(anew=False)
    first = called(tmp_path, module)
    assert float(module.seen) == 1.0
    assert torch.equal(first, torch.linspace(-1.0, 2.0, 12) + 1)
    with pytest.raises(CompileError, match="seen"):
        called(tmp_path, Counts(anew=True))


class Plain(nn.Module):
    """Nothing is wrong with it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x) * 2


@pytest.mark.parametrize(
    ("compilation", "error", "word"),
    [
        ({"splitting_ops": ["aten::gelo"]}, ConfigError, "aten::gelo does not exist"),
        ({"splitting_ops": ["gelu"]}, ConfigError, "is no name of an operator"),
        ({"splitting_ops": ["aten::gelu"], "mode": 2}, ConfigError, "does not cut"),
        ({"compile_sizes": [65]}, ConfigError, "outside of 1 to 64"),
        ({"compile_ranges": [8], "mode": 0}, ConfigError, "makes no code for ranges"),
        ({"use_inductor_graph_partition": True}, ConfigError, "Inductor compiles nothing"),
        ({"backend": "indctor"}, ConfigError, 'backend "indctor"'),
    ],
    ids=str,
)
def test_settings_that_contradict_are_refused(
    tmp_path: Path, compilation: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        called(tmp_path, Plain(), **compilation)
    assert getattr(caught.value, "hint", "")


def test_a_splitting_op_that_does_not_exist_is_answered_with_the_closest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        called(tmp_path, Plain(), splitting_ops=["torch.ops.aten.gelo"])
    assert 'did you mean "aten::gelu"?' in caught.value.hint


@pytest.mark.parametrize("name", ["aten::gelu", "aten.gelu", "torch.ops.aten.gelu.default"])
def test_a_splitting_op_cuts_however_it_is_spelt(tmp_path: Path, name: str) -> None:
    model = vcc.compile(
        Plain().eval(),
        compilation={"backend": "eager", "splitting_ops": [name]},
        cache_dir=tmp_path,
    )
    x = torch.randn(12)
    assert torch.equal(model(x), Plain()(x))
    assert model.counters["pieces"] == 1, "the product behind the cut"
