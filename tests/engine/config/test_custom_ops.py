"""The custom-op grammar (row M7 is in test_resolve)."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.custom_ops import (
    ALIASES,
    NATIVE,
    OP_BACKENDS,
    OpDecision,
    choose_ops,
    decided,
)
from vcc.engine.config.modes import Backend, CompileMode
from vcc.engine.ops import backends

KNOWN = ("rms_norm", "silu_and_mul", "rotary_embedding")


def choose(*tokens: str) -> frozenset[str]:
    mode, backend = CompileMode.VCC_COMPILE, Backend.INDUCTOR
    return choose_ops(tokens, KNOWN, mode, backend).enabled


def test_base_then_signs() -> None:
    assert choose() == choose("none") == frozenset()
    assert choose("all") == frozenset(KNOWN)
    assert choose("+rms_norm") == {"rms_norm"}
    assert choose("all", "-rms_norm") == {"silu_and_mul", "rotary_embedding"}
    assert choose("-rms_norm", "all") == choose("all", "-rms_norm", "-rms_norm")


@pytest.mark.parametrize(
    ("tokens", "message", "hint"),
    [
        (("all", "none"), 'has both "all" and "none"', "keep one"),
        (("+rms_norm", "-rms_norm"), 'both enables and disables "rms_norm"', "keep one"),
        (("+rmsnorm",), 'unknown custom op "rmsnorm"', 'did you mean "rms_norm"'),
        (("+",), 'unknown custom op ""', "known"),
        (("rms_norm",), "it has no sign", 'write "+rms_norm"'),
        (("al",), "it has no sign", 'did you mean "all"'),
    ],
)
def test_contradictions_and_unknown_names(tokens: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(*tokens)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_every_decision_has_a_reason_and_the_canonical_form_means_the_same() -> None:
    for mode in CompileMode:
        for backend in Backend:
            for tokens in (None, ("all", "-rms_norm"), ("none", "+rms_norm")):
                choices = choose_ops(tokens, KNOWN, mode, backend)
                assert all(one.why for one in choices.decisions)
                again = choose_ops(choices.as_config(), KNOWN, mode, backend)
                assert again.enabled == choices.enabled
                assert again.as_config() == choices.as_config()


def decisions(*tokens: str) -> dict[str, OpDecision]:
    mode, backend = CompileMode.VCC_COMPILE, Backend.INDUCTOR
    return {one.op: one for one in choose_ops(tokens, KNOWN, mode, backend).decisions}


def test_one_back_end_of_one_op() -> None:
    found = decisions("none", "+rms_norm:triton", "+silu_and_mul")
    assert (found["rms_norm"].enabled, found["rms_norm"].backend) == (True, "triton")
    assert found["rms_norm"].why == '"+rms_norm:triton" was asked for'
    assert found["silu_and_mul"].backend == ""
    assert decisions("+rms_norm", "+rms_norm:triton")["rms_norm"].backend == "triton"
    assert decisions("+rms_norm:triton", "+rms_norm")["rms_norm"].backend == "triton"
    assert decisions("all", "+rms_norm:rocm")["rms_norm"].backend == "hip"


def test_asking_for_native_switches_an_op_off() -> None:
    found = decisions("all", "+rms_norm:native")["rms_norm"]
    assert (found.enabled, found.why) == (False, '"+rms_norm:native" was asked for')
    assert choose("all", "+rms_norm:native") == choose("all", "-rms_norm")


def test_a_class_in_the_place_of_a_layer() -> None:
    found = decisions("+rms_norm=mine.norms:Fast")["rms_norm"]
    assert (found.enabled, found.layer, found.backend) == (True, "mine.norms:Fast", "")
    assert found.token == "+rms_norm=mine.norms:Fast"
    assert decisions("+rms_norm=fast")["rms_norm"].layer == "fast"


def test_the_canonical_form_keeps_back_ends_and_classes() -> None:
    mode, backend = CompileMode.VCC_COMPILE, Backend.INDUCTOR
    tokens = ("all", "+rms_norm:rocm", "-silu_and_mul", "+rotary_embedding=mine:Turn")
    found = choose_ops(tokens, KNOWN, mode, backend)
    assert found.as_config() == ("none", "+rms_norm:hip", "+rotary_embedding=mine:Turn")
    again = choose_ops(found.as_config(), KNOWN, mode, backend)
    assert (again.enabled, again.asked, again.layers) == (found.enabled, found.asked, found.layers)
    stored = decided(found.as_config())
    assert (stored.enabled, stored.asked, stored.layers) == (
        found.enabled,
        found.asked,
        found.layers,
    )


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (("+rms_norm:triton", "+rms_norm:cpu"), "triton and cpu"),
        (("+rms_norm:triton", "-rms_norm"), "both enables and disables"),
        (("+rms_norm:native", "+rms_norm"), "native and any kernel"),
        (("+rms_norm=a:A", "+rms_norm=b:B"), "a:A and b:B"),
        (("+rms_norm=a:A", "+rms_norm:cpu"), "a:A and cpu"),
        (("+rms_norm:tritn",), 'unknown back end "tritn"'),
        (("+rms_norm:",), 'unknown back end ""'),
        (("-rms_norm:triton",), "neither a back end nor a class"),
        (("+rms_norn:triton",), 'unknown custom op "rms_norn"'),
        (("+rms_norm=",), 'unknown custom op "rms_norm="'),
    ],
)
def test_contradictory_and_unreadable_wishes(tokens: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(*tokens)


def test_names_of_back_ends_are_those_of_the_operators() -> None:
    ours = {name for name in backends.BACKENDS if name != backends.OWN}
    assert set(OP_BACKENDS) == ours | set(backends.ALIASES)
    assert dict(backends.ALIASES) == ALIASES
    assert backends.NATIVE == NATIVE
