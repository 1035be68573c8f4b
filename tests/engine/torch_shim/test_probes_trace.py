"""Probes of what tracing needs of private torch: `export` and `fake`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from support.toys import module_of, rows
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim

from vcc.engine.torch_shim import export, fake


def exported(function: Callable[..., Any], **parts: Any) -> Any:
    """The exported program of `function(module, x)` with T in [1, 64]."""
    module = module_of(function, **parts)
    shapes = {"x": {0: Dim("T", min=1, max=64)}}
    return export.export_step(module, {"x": rows()}, shapes, None)


# --- export


def test_export_export_step() -> None:
    """Non-strict export with named arguments and a declared range."""
    program = exported(lambda m, x: x * 2)
    assert [(int(r.lower), int(r.upper)) for r in program.range_constraints.values()] == [(1, 64)]


def test_export_data_dependent() -> None:
    assert export.data_dependent(exported(lambda m, x: x * 2)) == ""
    said = export.data_dependent(exported(lambda m, x: x.nonzero().sum()))
    assert said.startswith("aten.nonzero.default makes u")


def test_export_guards_behind() -> None:
    def branch(m: Any, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 8 else x

    with pytest.raises(Exception, match="Constraints violated") as caught:
        exported(branch)
    (guard,) = export.guards_behind(caught.value)
    assert guard.startswith("s")
    assert "test_probes_trace.py" in guard
    assert export.guards_behind(ValueError()) == ()


def test_export_guards_of() -> None:
    """A finished export still has its guards, with lines, in the environment of its inputs."""

    def branch(m: Any, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] >= 3 else x

    shapes = {"x": {0: Dim.AUTO}}
    program = export.export_step(module_of(branch), {"x": rows()}, shapes, None)
    (said,) = export.guards_of(program)
    assert ">= 3 at " in said
    assert "test_probes_trace.py" in said
    assert export.guards_of(exported(lambda m, x: x * 2)) == ()


def test_export_input_size() -> None:
    program = exported(lambda m, x: x * 2)
    assert export.input_size(program, "x", 0) in map(str, program.range_constraints)
    assert export.input_size(program, "x", 1) is None
    assert export.input_size(program, "y", 0) is None


def test_export_placeholders_of() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 4), False)
    program = exported(lambda m, x: x @ m.weight + m.table, weight=weight, table=torch.ones(4))
    found = {(p.role, p.target) for p in export.placeholders_of(program)}
    assert found == {("weight", "weight"), ("constant", "table"), ("input", "x")}


def test_export_graph_before_decomposition() -> None:
    """In-place calls are in place, composite ones whole."""
    code = export.graph_before_decomposition(exported(lambda m, x: x.clone().add_(1).t())).code
    assert "aten.add_.Tensor" in code
    assert "aten.t.default" in code


def test_export_lifted_constants() -> None:
    program = exported(lambda m, x: x + torch.tensor([1.0, 2, 3, 4]) + m.table, table=torch.ones(4))
    found = export.lifted_constants(program)
    assert {name: value.tolist() for name, value in found.items()} == {
        "table": [1.0] * 4,
        "lifted_tensor_0": [1.0, 2.0, 3.0, 4.0],
    }


# --- fake


def test_fake_fake_mode() -> None:
    one, two = fake.fake_mode(), fake.fake_mode()
    assert one.shape_env is not two.shape_env
    with one:
        assert torch.empty(3, 4).fake_mode is one


def test_fake_new_symbol() -> None:
    """A size with its own name, hint and range."""
    mode = fake.fake_mode()
    size = fake.new_symbol(mode, "s0", 6, 1, 64)
    bounds = mode.shape_env.var_to_range[size.node.expr]
    assert (int(bounds.lower), int(bounds.upper)) == (2, 64)
    assert size.node.hint == 6
    other = fake.new_symbol(mode, "s1", 6, 1, 64)
    assert size.node.expr != other.node.expr, "equal hints do not make one symbol"


def test_fake_hint_of() -> None:
    size = fake.new_symbol(fake.fake_mode(), "s0", 6, 1, 64)
    assert fake.hint_of(size, size.node.expr) == 6
    assert fake.hint_of(size, sympy.Symbol("nobody")) is None


def test_fake_shape_env_of() -> None:
    mode = fake.fake_mode()
    size = fake.new_symbol(mode, "s0", 6, 1, 64)
    with mode:
        assert fake.shape_env_of(torch.empty(3)) is mode.shape_env
    assert fake.shape_env_of(size) is mode.shape_env


def test_fake_expression() -> None:
    size = fake.new_symbol(fake.fake_mode(), "s0", 6, 1, 64)
    assert fake.expression(size * 2 + 1) == 2 * fake.expression(size) + 1
    assert fake.expression(7) == 7
    kinds = {type(fake.expression(size // 3)), type(fake.expression(size % 3))}
    assert kinds <= {*fake.FLOOR_DIVISIONS, *fake.MODULI}
    with pytest.raises(TypeError):
        fake.expression(size / 2)


def test_fake_strided() -> None:
    mode = fake.fake_mode()
    size = fake.new_symbol(mode, "s0", 6, 1, 64)
    found = fake.strided(mode, [size, 4], [4, 1], torch.bfloat16, torch.device("cpu"))
    assert (found.dtype, found.stride(), str(found.shape[0])) == (torch.bfloat16, (4, 1), str(size))


def test_fake_as_fake() -> None:
    mode, module = fake.fake_mode(), torch.nn.BatchNorm1d(4)
    found = fake.as_fake(mode, module)
    assert set(found) == {*dict(module.named_parameters()), *dict(module.named_buffers())}
    assert [tuple(one.shape) for one in found.values()] == [(4,), (4,), (4,), (4,), ()]
    assert {type(one) for one in found.values()} == {FakeTensor}


@pytest.mark.parametrize(
    "body", [lambda x: bool(x.sum() > 0), lambda x: x.nonzero(), lambda x: x.sum().item()]
)
def test_fake_needs_data(body: Any) -> None:
    with fake.fake_mode() as mode:
        mode.shape_env = None
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is asked
            body(torch.ones(3))
    assert fake.needs_data(caught.value)
    assert not fake.needs_data(ValueError("the model's own"))
