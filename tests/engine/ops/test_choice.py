"""Which back end a layer takes, what was refused before it, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vcc.engine.ops import choice as choices
from vcc.engine.ops.backends import BACKENDS, NATIVE, ORDER, names_of, order_of
from vcc.engine.ops.capabilities import Available
from vcc.engine.ops.choice import OpChoice, Route, Subject, choose
from vcc.engine.ops.names import CUSTOM_OPS, KNOWN_OPS
from vcc.engine.ops.surfaces.row import Row

ALL = frozenset(KNOWN_OPS)
NORM = Subject.of("rms_norm")


def on(platform: str, **more: object) -> OpChoice:
    return replace(OpChoice(ALL, platform), **more)


def refused(route: Route) -> dict[str, str]:
    return {one.backend: one.refusal for one in route.refused}


@pytest.mark.parametrize(
    ("platform", "order"),
    [
        ("cuda", ("cuda", "triton", "native")),
        ("rocm", ("hip", "triton", "native")),
        ("xpu", ("xpu", "triton", "native")),
        ("cpu", ("cpu", "native")),
        ("tpu", ("oot", "native")),
    ],
)
def test_the_order_of_a_platform(platform: str, order: tuple[str, ...]) -> None:
    assert order_of(platform) == order


def test_every_name_of_an_order_is_a_back_end_and_rocm_is_an_alias_of_hip() -> None:
    assert {name for order in ORDER.values() for name in order} <= set(BACKENDS)
    assert all(one.method.startswith("forward_") for one in BACKENDS.values())
    assert "rocm" in names_of("rocm")
    assert "rocm" not in names_of("cuda")


@pytest.mark.parametrize("platform", ["rocm", "xpu", "cpu"])
def test_the_first_back_end_of_a_platform_is_taken_where_nothing_is_lacking(platform: str) -> None:
    for op in KNOWN_OPS:
        found = choose(Subject.of(op), on(platform), {"weight_offset": 0, "tanh": 1})
        first = order_of(platform)[0]
        if all(name in BACKENDS[first].surface for name in CUSTOM_OPS[op].operators):
            assert (found.backend, found.refused) == (first, ())
        else:
            assert f"among the kernels of {first}" in refused(found)[first]
        assert found.candidates[-1].backend == found.backend


def test_an_op_that_is_off_is_native_and_each_kernel_says_so() -> None:
    found = choose(NORM, on("rocm", enabled=frozenset(), whys=(("rms_norm", "Inductor fuses"),)))
    assert (found.backend, found.method) == (NATIVE, "forward_native")
    assert found.reason == "rms_norm is off: Inductor fuses"
    assert refused(found) == dict.fromkeys(("hip", "triton"), found.reason)


def test_a_missing_package_leaves_the_next_one_with_the_reason_kept() -> None:
    here = Available(missing=(("hip", "amd-aiter is not installed: pip install amd-aiter"),))
    found = choose(NORM, on("rocm", here=here))
    assert found.backend == "triton"
    assert refused(found) == {"hip": "amd-aiter is not installed: pip install amd-aiter"}
    both = Available(missing=(*here.missing, ("triton", "triton is not installed")))
    assert choose(NORM, on("rocm", here=both)).backend == NATIVE


def test_a_version_that_a_row_does_not_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(BACKENDS["hip"].surface["rms_norm"], minimum="0.3")
    hip = replace(BACKENDS["hip"], surface={**BACKENDS["hip"].surface, "rms_norm": later})
    monkeypatch.setattr(choices, "BACKENDS", {**BACKENDS, "hip": hip})
    found = choose(NORM, on("rocm", here=Available(versions=(("hip", "0.2.1"),))))
    assert refused(found)["hip"] == "rms_norm needs version 0.3 of its package, not 0.2.1"


def test_limits_of_a_kernel_are_held_against_the_layers_numbers() -> None:
    found = choose(NORM, on("rocm"), {"weight_offset": 1.0, "width": 4096})
    assert found.backend == "triton"
    assert refused(found)["hip"] == "rms_norm of hip: it takes weight_offset 0 only, not 1"
    wide = choose(NORM, on("rocm"), {"weight_offset": 1.0, "width": 1 << 21})
    assert wide.backend == NATIVE
    assert "width up to" in refused(wide)["triton"]


def test_architecture_and_element_type_are_held_against_the_rows() -> None:
    old = choose(NORM, on("rocm", arch="gfx906"))
    assert "compiled for gfx90a, gfx942, gfx950, not for gfx906" in refused(old)["hip"]
    half = choose(NORM, on("cpu", dtype="float16"))
    assert half.backend == NATIVE
    assert refused(half)["cpu"] == "rms_norm of cpu: it takes float32, bfloat16, not float16"


def test_a_back_end_that_was_asked_for_is_taken_or_the_route_says_it_is_not() -> None:
    asked = on("rocm", asked=(("rms_norm", "triton"),))
    found = choose(NORM, asked)
    assert (found.backend, found.asked) == ("triton", "")
    assert refused(found) == {"hip": 'custom_ops asks for "triton"'}
    assert found.reason == 'custom_ops asks for "triton"'
    lacking = replace(asked, here=Available(missing=(("triton", "triton is not installed"),)))
    missed = choose(NORM, lacking)
    assert (missed.backend, missed.asked) == (NATIVE, "triton")
    assert refused(missed)["triton"] == "triton is not installed"
    alias = choose(NORM, on("rocm", asked=(("rms_norm", "rocm"),)))
    assert (alias.backend, alias.asked) == ("hip", "")


def test_a_layer_without_operators_has_its_own_forwards_only() -> None:
    mine = Subject("mine", "Mine", own=frozenset({"hip"}))
    assert choose(mine, OpChoice(frozenset({"mine"}), "rocm")).backend == "hip"
    found = choose(mine, OpChoice(frozenset({"mine"}), "xpu"))
    assert refused(found)["xpu"] == "Mine has no forward_xpu of its own"


def test_a_cuda_row_comes_before_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {op: Row(op, f"vcc::{op}", archs=("sm_90",)) for op in NORM.operators}
    cuda = replace(BACKENDS["cuda"], surface=rows)
    monkeypatch.setattr(choices, "BACKENDS", {**BACKENDS, "cuda": cuda})
    assert choose(NORM, on("cuda", arch="sm_90")).backend == "cuda"
    other = choose(NORM, on("cuda", arch="sm_80"))
    assert other.backend == "triton"
    assert "compiled for sm_90, not for sm_80" in refused(other)["cuda"]


def test_choosing_is_pure_and_choices_are_values() -> None:
    same = on("rocm", here=Available(missing=(("hip", "gone"),)))
    assert choose(NORM, same) == choose(NORM, same)
    assert hash(same) == hash(replace(same))


def test_replacing_twice_keeps_the_last_and_the_others() -> None:
    choice = OpChoice().replacing("A", int).replacing("B", str).replacing("A", float)
    assert choice.replacement("A") is float
    assert choice.replacement("B") is str
    assert choice.replacement("C") is None
    assert hash(choice) == hash(OpChoice().replacing("B", str).replacing("A", float))
