"""Inductor's settings stand in the code key as text, and are those that a build hands over."""

from __future__ import annotations

from vcc.engine.config.inductor_options import build_options, option_pairs
from vcc.engine.config.target import Target
from vcc.engine.torch_shim.fx_wrapper import cuda_options
from vcc.engine.torch_shim.inductor import merged_options


def test_options_are_labelled_text_in_order() -> None:
    pairs = option_pairs({"b": True, "a": "1"})
    assert pairs == (("inductor.a", "'1'"), ("inductor.b", "True"))


def test_the_key_has_what_a_build_is_given() -> None:
    user = {"cpp.simdlen": 128, "max_autotune": True}
    for level in ("x86-64-v3", "x86-64-v4"):
        found = build_options(Target.parse(f"cpu:{level}"), user)
        assert found == merged_options(level, user)
    assert build_options(Target.parse("sm_90"), user) == cuda_options(user)


def test_checks_that_are_compiled_out_are_named() -> None:
    for target, name in (("cpu", "aot_inductor.check_lowerbound"), ("sm_90", "size_asserts")):
        assert build_options(Target.parse(target), {})[name] is False
