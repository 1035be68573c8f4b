"""A plan's copies give what torch makes of the same bindings, from headers alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.weight_cases import BINDINGS, at, checkpoint, done_by_numpy, homes, size_of

from vcc.cache.errors import IntegrityError, ModelError
from vcc.engine.models.expressions import (
    Cat,
    ChannelsLast,
    FromTensor,
    Rows,
    Stack,
    Tied,
    Transpose,
)
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.models.weights import load_weights
from vcc.engine.runtime.player.weight_plan import Home, plan_weights


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
def test_every_form_of_binding_is_what_torch_makes_of_it(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    tensors = checkpoint(tmp_path, stored)
    values, _ = load_weights(BINDINGS, tensors, wanted)
    places = homes(values)
    plan = plan_weights(places, BINDINGS, tensors, {})
    region = done_by_numpy(plan, size_of(places))
    for home in places:
        assert torch.equal(at(region, home), values[home.name]), home.name


def test_tied_parameters_are_copied_once(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path)
    bindings = {"embed": FromTensor("embed"), "head": Tied("embed")}
    values, _ = load_weights(bindings, tensors, torch.bfloat16)
    plan = plan_weights(homes(values, bindings), bindings, tensors, {})
    assert (plan.count, plan.bytes) == (1, 64 * 24 * 2)


def test_a_tied_parameter_with_a_place_of_its_own_is_copied_there_too(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path)
    bindings = {"embed": FromTensor("embed"), "head": Tied("embed")}
    shape = (64, 24)
    places = [Home("head", "bfloat16", shape, 0), Home("embed", "bfloat16", shape, 4096)]
    assert plan_weights(places, bindings, tensors, {}).count == 2


def test_constants_come_from_the_artifact() -> None:
    places = [Home("a", "float32", (2,), 0, True), Home("b", "int32", (3,), 256, True)]
    data = {"a": b"12345678", "b": b"abcdefghijkl"}
    plan = plan_weights(places, {}, {}, data)
    region = done_by_numpy(plan, size_of(places))
    assert (region[:8], region[256:]) == (b"12345678", b"abcdefghijkl")
    with pytest.raises(IntegrityError, match="b is missing"):
        plan_weights(places, {}, {}, {"a": data["a"]})
    with pytest.raises(IntegrityError, match="a is 3 bytes: the table takes 8"):
        plan_weights(places, {}, {}, data | {"a": b"abc"})


def test_files_are_as_long_as_the_tensors_that_are_read(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path)
    bindings = {"a": FromTensor("bias_a"), "q": FromTensor("q")}
    values, _ = load_weights(bindings, tensors, torch.bfloat16)
    plan = plan_weights(homes(values, bindings), bindings, tensors, {})
    wanted = {info.file: info.end for name, info in tensors.items() if name in ("bias_a", "q")}
    assert dict(zip(plan.files, plan.least, strict=True)) == wanted


def test_the_first_five_differences_are_told(tmp_path: Path) -> None:
    tensors = dict(checkpoint(tmp_path))
    tensors["int"] = TensorInfo("int32", (2,), tmp_path / "x", 0, 8)
    places = [
        Home("missing", "bfloat16", (2,), 0),
        Home("q", "bfloat16", (12, 8), 256),
        Home("int", "bfloat16", (2,), 512),
        *(Home(f"more{i}", "bfloat16", (1,), 1024) for i in range(4)),
    ]
    bindings = {home.name: FromTensor(home.name) for home in places}
    with pytest.raises(ModelError) as told:
        plan_weights(places, bindings, tensors, {})
    assert "no weights for missing" in told.value.why
    assert "q is [12, 7], the artifact takes [12, 8]" in told.value.why
    assert "int is int32, the artifact takes bfloat16" in told.value.why
    assert told.value.why.endswith("and 2 more")


@pytest.mark.parametrize(
    "binding",
    [
        Cat((FromTensor("q"), FromTensor("embed"))),
        Stack((FromTensor("q"), FromTensor("k"))),
        Rows(FromTensor("q"), 0, 13),
        Transpose(FromTensor("three")),
        Cat((FromTensor("scalar"),)),
        ChannelsLast(FromTensor("q")),
        ChannelsLast(FromTensor("scalar")),
        ChannelsLast(Stack((Transpose(FromTensor("q")), Transpose(FromTensor("q"))))),
        Rows(ChannelsLast(FromTensor("three")), 0, 1),
        Cat((Tied("turned"), Tied("turned"))),
    ],
)
def test_shapes_that_do_not_go_together_are_named(tmp_path: Path, binding: object) -> None:
    tensors = checkpoint(tmp_path)
    bindings = {"x": binding, "turned": ChannelsLast(FromTensor("three"))}
    with pytest.raises(ModelError, match="shapes do not go together"):
        plan_weights([Home("x", "bfloat16", (1,), 0)], bindings, tensors, {})


def test_a_circle_of_ties_is_refused(tmp_path: Path) -> None:
    bindings = {"a": Tied("b"), "b": Tied("a")}
    with pytest.raises(ModelError, match="tied to itself"):
        plan_weights([Home("a", "bfloat16", (1,), 0)], bindings, {}, {})


def test_an_empty_tensor_needs_no_copy() -> None:
    tensors = {"e": TensorInfo("float32", (0, 4), Path("x"), 8, 8)}
    plan = plan_weights([Home("e", "float32", (0, 4), 0)], {"e": FromTensor("e")}, tensors, {})
    assert plan.count == 0
