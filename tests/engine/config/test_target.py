"""Target: parse and str are inverse, unknown machines are named."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.target import CPU_LEVELS, GPU_TARGETS, Target


@pytest.mark.parametrize(
    "text", [*(f"cpu:{level}" for level in CPU_LEVELS), "sm_90", "sm_90a:132", "sm_100f"]
)
def test_parse_and_str_are_inverse(text: str) -> None:
    assert str(Target.parse(text)) == text
    assert Target.parse(str(Target.parse(text))) == Target.parse(text)


def test_short_forms() -> None:
    assert str(Target.parse("cpu")) == "cpu:x86-64-v3"
    assert str(Target.parse("cuda:sm_80:108")) == "sm_80:108"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cuda",
        "gpu",
        "sm_",
        "sm_9x",
        "cpu:x86",
        "sm_90:",
        "sm_90:-1",
        "sm_90:1:2",
        "cpu:a:b",
        "sm_90:0",
    ],
)
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Target.parse(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["gpu", "sm_9999", "sm_90:99999999999999999999", "sm_90:" + "9" * 5000]
)
def test_a_gpu_that_cannot_be_is_told_the_known_ones(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Target.parse(text)
    assert all(name in caught.value.hint for name in GPU_TARGETS)


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        *((text, "AMD") for text in ("gfx942", "hip", "hip:gfx90a", "rocm", "GFX950:304")),
        *((text, "Intel") for text in ("xpu", "xpu:bmg")),
    ],
)
def test_a_gpu_of_another_maker_is_refused_by_name(text: str, whose: str) -> None:
    with pytest.raises(ConfigError, match=f"no code is built for {whose} GPUs") as caught:
        Target.parse(text)
    assert text in caught.value.what
    assert "neither a device profile nor a player" in caught.value.why
    assert "sm_90" in caught.value.hint


def test_a_close_cpu_level_is_suggested() -> None:
    with pytest.raises(ConfigError) as caught:
        Target.parse("cpu:x86-64-v33")
    assert 'did you mean "x86-64-v3' in caught.value.hint
