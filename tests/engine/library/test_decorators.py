"""Decorated classes stay what they are; which instances are compiled, and from where."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from support import library_classes as zoo
from torch import Tensor, nn

import vcc
from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.library.annotations import tensor_arguments
from vcc.engine.library.decorators import SLOT


@pytest.fixture(autouse=True)
def _store(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCC_CACHE_DIR", str(shelf))


def eager(module: nn.Module, *args: object, **more: object) -> Tensor:
    with torch.no_grad():
        return module.forward(*args, **more)


def test_inferred_dimensions_move_and_the_class_stays_what_it_is() -> None:
    block = zoo.Block(width=4).eval()
    assert isinstance(block, zoo.Block)
    assert list(block.state_dict()) == ["linear.weight", "linear.bias"]
    with zoo.COUNTERS.expect(compiles=1):
        for rows in (2, 9, 1):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(block(x), eager(block, x))
    assert len(vars(block)[SLOT].compiled.artifacts) == 1
    with pytest.raises(UsageError, match="T is declared from 1 to 32"):
        block(torch.randn(33, 4))


def test_copies_and_checkpoints_have_no_compiled_code_in_them() -> None:
    block = zoo.Block().eval()
    block(torch.randn(2, 4))
    twin = copy.deepcopy(block)
    assert vars(twin)[SLOT].compiled is None
    with torch.no_grad():
        twin.linear.weight.zero_()
    x = torch.randn(3, 4)
    torch.testing.assert_close(twin(x), eager(twin, x))
    torch.testing.assert_close(block(x), eager(block, x))


@pytest.mark.parametrize(
    ("kind", "compiled"),
    [(zoo.Child, True), (zoo.Ignored, False), (zoo.Grandchild, False), (zoo.Again, True)],
)
def test_the_nearest_decorator_of_a_class_decides(
    kind: type[nn.Module], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        "vcc.engine.library.decorators.Compiled.__call__",
        lambda self, *args: seen.append(args) or args[0],
    )
    kind().eval()(torch.randn(2, 4))
    assert bool(seen) == compiled


def test_enable_if_is_asked_once_with_the_configuration_of_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "vcc.engine.library.decorators.Compiled.__call__", lambda self, *args: "compiled"
    )
    x = torch.randn(2, 4)
    assert isinstance(zoo.Sometimes().eval()(x), Tensor)
    assert zoo.Sometimes(vcc_config={"level": 1}).eval()(x) == "compiled"
    assert isinstance(zoo.Sometimes(vcc_config={"level": 1, "mode": "none"}).eval()(x), Tensor)
    with pytest.raises(ConfigError, match="levle"):
        zoo.Block(vcc_config={"levle": 1})


def test_inside_of_another_module_it_is_a_part_of_that(shelf: Path) -> None:
    outer = zoo.Outer().eval()
    with torch.no_grad():
        program = torch.export.export(outer, (torch.randn(2, 4),), strict=False)
    assert "relu" in str(program.graph)
    compiled = vcc.compile(outer, cache_dir=shelf, dynamic_arg_dims={"x": 0}, jobs=1)
    with compiled.counters.expect(compiles=1):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), eager(outer.block, x) + 1)


def test_a_function_is_compiled_once_and_keeps_its_name() -> None:
    assert (zoo.scaled.__name__, zoo.scaled.__doc__) == ("scaled", "Says what it is.")
    with zoo.COUNTERS.expect(compiles=2, traces=2):  # `by` is part of the code
        for rows in (2, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(zoo.scaled(x), torch.softmax(x * 2.0, dim=-1))
            torch.testing.assert_close(zoo.scaled(x, by=3.0), torch.softmax(x * 3.0, dim=-1))
    again = vcc.cache_compiled(dynamic_arg_dims={"x": 0}, sizes=zoo.RANGE, require_warm=True)(
        zoo.scaled.__wrapped__
    )
    with again.counters.expect(hits=1, compiles=0):
        again(torch.randn(3, 4))


def test_what_is_closed_over_is_part_of_the_key(tmp_path: Path) -> None:
    def made(factor: float):
        def shift(x: Tensor) -> Tensor:
            return x.view_as(x) if factor is None else x  # its input: nothing is compiled

        return vcc.cache_compiled(cache_dir=tmp_path)(shift)

    first, second = (made(factor).prepare(torch.ones(2)) for factor in (1.0, 2.0))
    assert first != second


@pytest.mark.parametrize(
    ("decorate", "error", "why"),
    [
        (lambda: vcc.support_torch_compile(len), UsageError, "classes of nn.Module"),
        (lambda: vcc.cache_compiled(nn.Linear), UsageError, "functions of tensors"),
        (lambda: vcc.support_torch_compile(nn.Identity), None, ""),
        (
            lambda: vcc.support_torch_compile(dynamic_arg_dims={"z": 0})(zoo.Outer)().eval()(None),
            ConfigError,
            "no argument z",
        ),
    ],
)
def test_what_cannot_be_decorated_is_refused(decorate, error, why: str) -> None:
    if error is None:
        untyped = type("Untyped", (nn.Module,), {"forward": lambda self, x: x})
        with pytest.raises(ConfigError, match="can be inferred"):
            vcc.support_torch_compile(untyped)
        return
    with pytest.raises(error, match=why):
        decorate()


def test_annotations_are_read_as_texts_too() -> None:
    def real(a: Tensor, b: Tensor | None, c: int, d: list[Tensor], e=None): ...

    def texts(a, b, c, d): ...

    texts.__annotations__ = {
        "a": "torch.Tensor",
        "b": "Optional[Tensor]",
        "c": "Tensor | None",
        "d": "Missing",
    }
    assert tensor_arguments(real) == ("a", "b")
    assert tensor_arguments(texts) == ("a", "b", "c")
