"""CustomOp: replacement by name (M9), refused arguments (F8), layouts, aliases, NaN."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from vcc.cache.errors import CompileError, UsageError
from vcc.engine.ops import native_torch
from vcc.engine.ops.choice import OpChoice
from vcc.engine.ops.layers import CustomOp, RMSNorm, RotaryEmbedding, SiluAndMul
from vcc.engine.ops.surfaces.row import Row, table

ALL = OpChoice(frozenset({"rms_norm", "silu_and_mul", "rotary_embedding"}))
TPU = OpChoice(frozenset({"rms_norm"}), "tpu")


@RMSNorm.register_oot()
class Tripled(RMSNorm):
    """Out of tree, with a forward for platforms that are not ours."""

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return 2 * x

    def forward_oot(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return 3 * x


@CustomOp.register_oot("RMSNorm")
class NativeOnly(RMSNorm):
    """Out of tree, with other plain torch only."""

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return 5 * x


class Swept(RMSNorm):
    """Under the platform's other name."""

    def forward_rocm(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return 7 * x


def test_m9_a_registered_class_is_built_and_its_own_forward_runs_on_its_platform() -> None:
    """M9: constructing the named layer gives the class; out of tree its own forward runs."""
    x = torch.randn(2, 8)
    layer = RMSNorm(8, choice=TPU.replacing("RMSNorm", Tripled))
    assert type(layer) is Tripled
    assert layer.method == "forward_oot"
    assert layer.choice_reason == "Tripled has a forward_oot of its own"
    assert torch.equal(layer(x), 3 * x)
    assert type(RMSNorm(8, choice=TPU)) is RMSNorm
    assert RMSNorm(8, choice=TPU).method == "forward_native"


def test_a_replacements_forwards_come_before_inherited_kernels(ops: Any) -> None:
    x = torch.randn(2, 8)
    layer = RMSNorm(8, choice=ALL.replacing("RMSNorm", NativeOnly))
    assert torch.equal(layer(x), 5 * x)
    assert RMSNorm(8, choice=ALL.replacing("RMSNorm", Tripled)).method == "forward_oot"
    plain = RMSNorm(8, choice=OpChoice().replacing("RMSNorm", NativeOnly))
    assert torch.equal(plain(x), 5 * x)
    rocm = OpChoice(frozenset({"rms_norm"}), "rocm").replacing("RMSNorm", Swept)
    assert torch.equal(RMSNorm(8, choice=rocm)(x), 7 * x)


def test_registering_changes_nothing_by_itself() -> None:
    assert (Tripled.replaces, NativeOnly.replaces) == ("RMSNorm", "RMSNorm")
    assert type(RMSNorm(8, choice=ALL)) is RMSNorm


def test_a_class_is_registered_for_a_layer_that_it_derives_from() -> None:
    with pytest.raises(UsageError, match="Linear is not a subclass of RMSNorm"):
        RMSNorm.register_oot()(nn.Linear)
    with pytest.raises(UsageError, match="Swept is not a subclass of SiluAndMul"):
        CustomOp.register_oot("SiluAndMul")(Swept)
    derived = type("Both", (Tripled,), {})
    with pytest.raises(UsageError, match="Both is registered for RMSNorm"):
        Tripled(8, choice=OpChoice().replacing("Tripled", derived))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_f8_refused_arguments_run_in_plain_torch_with_the_same_result(
    ops: Any, dtype: torch.dtype
) -> None:
    """F8: the preferred back end refuses the arguments, the native body runs in its place."""
    x, residual = torch.randn(3, 16).to(dtype), torch.randn(3, 16).to(dtype)
    norm = RMSNorm(16, choice=ALL).to(dtype)
    assert norm.method == "forward_cpu"
    y, total = norm(x, residual)
    want, summed = RMSNorm(16).to(dtype)(x, residual)
    assert torch.equal(y, want)
    assert torch.equal(total, summed)
    assert norm.refusals == [f"rms_norm: cpu does not take {str(dtype)[6:]}"]
    assert torch.equal(SiluAndMul(choice=ALL)(x), SiluAndMul()(x))
    angles = torch.randn(3, 4)
    turned = RotaryEmbedding(16, choice=ALL)(x, x, angles.cos(), angles.sin())
    plain = RotaryEmbedding(16)(x, x, angles.cos(), angles.sin())
    assert all(torch.equal(a, b) for a, b in zip(turned, plain, strict=True))


def test_f8_a_weight_of_another_type_is_refused_and_said_once(ops: Any) -> None:
    """F8 for arguments that do not go together."""
    norm, x = RMSNorm(16, choice=ALL), torch.randn(3, 16).bfloat16()
    for _ in range(3):
        assert torch.equal(norm(x), RMSNorm(16)(x))
    assert norm.refusals == ["rms_norm: cpu takes one element type, not bfloat16 with float32"]


def test_f8_holds_in_a_trace(ops: Any) -> None:
    """F8 where it matters: what is traced is the native body."""
    norm = RMSNorm(16, choice=ALL).half()
    x = torch.randn(3, 16).half()
    dims = {"args": ({0: torch.export.Dim("t", min=1, max=8)},)}
    program = torch.export.export(norm, (x,), dynamic_shapes=dims, strict=False)
    assert not [n for n in program.graph.nodes if "vcc" in str(n.target)]
    assert torch.equal(program.module()(x), norm(x))


LAYOUTS = {
    "rows of a wider tensor": lambda x: torch.cat((x, x), -1)[:, : x.shape[-1]],
    "every other column": lambda x: x.repeat_interleave(2, -1)[:, ::2],
    "columns before rows": lambda x: x.T.contiguous().T,
    "one row many times": lambda x: x[:1].expand(x.shape),
    "backwards through memory": lambda x: x.flip(0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_what_contiguous_rows_give(ops: Any, layout: str) -> None:
    x = torch.randn(6, 32)
    strange = LAYOUTS[layout](x)
    dense = strange.contiguous()
    before = strange.clone()
    norm, act = RMSNorm(32, choice=ALL), SiluAndMul(choice=ALL)
    rope, angles = RotaryEmbedding(16, choice=ALL), torch.randn(6, 8)
    cos, sin = angles.cos(), angles.sin()
    assert torch.equal(norm(strange), norm(dense))
    assert torch.equal(act(strange), act(dense))
    for got, want in zip(norm(strange, dense), norm(dense, dense), strict=True):
        assert torch.equal(got, want)
    across = cos.T.contiguous().T
    turned, plain = rope(strange, dense, across, sin), rope(dense, dense, cos, sin)
    for got, want in zip(turned, plain, strict=True):
        assert torch.equal(got, want)
    assert torch.equal(strange, before)


def test_more_dimensions_in_any_layout(ops: Any) -> None:
    x = torch.randn(3, 4, 16)
    norm = RMSNorm(16, choice=ALL)
    for strange in (x.transpose(0, 1), x.transpose(1, 2).contiguous().transpose(1, 2), x[:, ::2]):
        assert torch.equal(norm(strange), norm(strange.contiguous()))


def test_inputs_that_are_one_tensor_stay_as_they_were(ops: Any) -> None:
    x = torch.randn(4, 16)
    before = x.clone()
    y, total = RMSNorm(16, choice=ALL)(x, x)
    assert torch.equal(total, before + before)
    torch.testing.assert_close(y, native_torch.rms_norm(total, torch.ones(16), 1e-6))
    angles = torch.randn(4, 8)
    q, k = RotaryEmbedding(16, choice=ALL)(x, x, angles.cos(), angles.sin())
    assert torch.equal(q, k)
    assert q.data_ptr() != k.data_ptr()
    assert torch.equal(x, before)


@pytest.mark.parametrize("where", ["weight", "input", "residual"])
def test_nan_goes_where_it_goes_in_plain_torch(ops: Any, where: str) -> None:
    kernel, plain = RMSNorm(16, choice=ALL), RMSNorm(16)
    x, residual = torch.randn(3, 16), torch.randn(3, 16)
    target = {"weight": kernel.weight, "input": x[1], "residual": residual[2]}[where]
    target[5] = float("nan")
    plain.weight.copy_(kernel.weight)
    for got, want in zip(kernel(x, residual), plain(x, residual), strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        assert want.isnan().any() or where == "weight"
    assert torch.equal(kernel(x).isnan(), plain(x).isnan())
    assert torch.equal(SiluAndMul(choice=ALL)(x).isnan(), SiluAndMul()(x).isnan())


class Foreign(CustomOp):
    """A layer whose operator is another project's."""

    op, operators, namespace = "foreign", ("foreign",), "nofake_layer"
    rows: ClassVar = {"cpu": table(Row("foreign", "nofake_layer::foreign"))}

    def forward_native(self, x: Tensor) -> Tensor:
        return x

    def forward_kernel(self, ops: Any, x: Tensor) -> Tensor:
        return ops.foreign(x)


def test_an_operator_without_a_fake_is_said_when_the_layer_is_built() -> None:
    on = OpChoice(frozenset({"foreign"}))
    with pytest.raises(UsageError, match="nofake_layer::foreign is not registered"):
        Foreign(on)
    library = torch.library.Library("nofake_layer", "DEF")
    library.define("foreign(Tensor x) -> Tensor")
    library.impl("foreign", torch.clone, "CPU")
    with pytest.raises(CompileError, match="nofake_layer::foreign has no fake") as caught:
        Foreign(on)
    assert caught.value.hint == (
        'register one: @torch.library.register_fake("nofake_layer::foreign")'
    )
    assert Foreign()(torch.ones(2)).sum() == 2
    torch.library.register_fake("nofake_layer::foreign", torch.empty_like, lib=library)
    assert Foreign(on).method == "forward_cpu"
    library._destroy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_torch_compile_sees_through_a_layer(ops: Any, dtype: torch.dtype) -> None:
    layer = RMSNorm(16, choice=ALL).to(dtype)
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 16).to(dtype)
        for got, want in zip(compiled(x, x), layer(x, x), strict=True):
            assert torch.equal(got, want)


def test_a_layer_copies_with_its_route() -> None:
    layer = copy.deepcopy(RMSNorm(8, choice=ALL))
    assert layer.route == RMSNorm(8, choice=ALL).route


def test_a_new_op_needs_one_class(ops: Any) -> None:
    class Doubled(CustomOp):
        op, operators = "silu_and_mul", ("silu_and_mul",)

        def forward_native(self, x: Tensor) -> Tensor:
            return native_torch.silu_and_mul(x)

        def forward_kernel(self, ops: Any, x: Tensor) -> Tensor:
            return ops.silu_and_mul(x)

    x = torch.randn(2, 8)
    layer = Doubled(ALL)
    assert layer.method == "forward_cpu"
    torch.testing.assert_close(layer(x), Doubled()(x))
