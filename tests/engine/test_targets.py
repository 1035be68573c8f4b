"""The target of a request when nobody said it."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.modes import CompileMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.runtime.player.device import Device
from vcc.engine.targets import choose_target

NOTHING = CompilationConfig()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _here(monkeypatch, "sm_90")


def _here(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    made = Device(1, 0, "a GPU", arch, 13000, 1 << 30)
    monkeypatch.setattr("vcc.engine.runtime.player.device.device_or_none", lambda: made)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("said", "kind", "config", "wanted"),
    [
        (None, "decoder", NOTHING, "sm_90"),
        ("cpu", "decoder", NOTHING, "cpu:x86-64-v3"),
        ("sm_80", "decoder", NOTHING, "sm_80"),
        (None, "module", NOTHING, "cpu:x86-64-v3"),
        (None, "decoder", CompilationConfig(mode=CompileMode.NO_COMPILATION), "cpu:x86-64-v3"),
        (None, "decoder", CompilationConfig(mode=CompileMode.VCC_COMPILE), "sm_90"),
    ],
)
def test_a_gpu_is_taken_for_what_it_can_run(
    said: str | None, kind: str, config: CompilationConfig, wanted: str
) -> None:
    assert str(choose_target(said, kind, config)) == wanted


def test_an_unknown_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _here(monkeypatch, "sm_75")
    assert choose_target(None, "decoder", NOTHING).arch == "x86-64-v3"


def test_without_a_driver_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCC_LIBCUDA", "/nowhere/libcuda.so.1")
    assert choose_target(None, "decoder", NOTHING).arch == "x86-64-v3"


def test_words_that_are_no_target_are_refused() -> None:
    with pytest.raises(ConfigError):
        choose_target("gpu please", "decoder", NOTHING)
