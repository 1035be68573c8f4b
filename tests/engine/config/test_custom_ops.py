"""The custom-op grammar (row M7 is in test_resolve)."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.custom_ops import choose_ops
from vcc.engine.config.modes import Backend, CompileMode

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
