"""Host rules: why an artifact cannot be loaded here, one rule at a time."""

from __future__ import annotations

import platform
from importlib import metadata

import pytest

from vcc.engine.runtime import host
from vcc.engine.runtime.player.device import Device

HERE = {
    "loader": "torch",
    "machine": platform.machine(),
    "torch": ".".join(metadata.version("torch").split(".")[:2]),
}


@pytest.fixture(autouse=True)
def _flags(monkeypatch: pytest.MonkeyPatch) -> None:
    level3 = host.LEVELS["x86-64-v2"] | host.LEVELS["x86-64-v3"]
    monkeypatch.setattr(host, "cpu_flags", lambda: level3 | {"sse", "ht"})


def test_an_artifact_of_this_host_can_be_loaded() -> None:
    assert host.why_not(HERE | {"cpu_level": "x86-64-v3"}) == ""
    assert host.why_not(HERE | {"cpu_level": "x86-64-v2"}) == ""
    assert host.why_not({}) == ""


@pytest.mark.parametrize(
    ("rule", "value", "why"),
    [
        ("machine", "aarch64", "it is for aarch64"),
        ("cpu_level", "x86-64-v4", "lacks avx512bw, avx512cd"),
        ("cpu_level", "x86-64-v9", "lacks x86-64-v9"),
        ("torch", "1.13", "built for torch 1.13"),
        ("torch", "2", "built for torch 2"),
        ("glibc", "2.99", "unknown host rule glibc"),
        ("", "", "unknown host rule"),
    ],
)
def test_a_rule_that_does_not_hold_says_why(rule: str, value: str, why: str) -> None:
    """F97, F98."""
    assert why in host.why_not(HERE | {rule: value})


def test_one_missing_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """F98: refused, never an illegal instruction."""
    flags = host.LEVELS["x86-64-v2"] | host.LEVELS["x86-64-v3"] - {"fma"}
    monkeypatch.setattr(host, "cpu_flags", lambda: flags)
    assert host.why_not({"cpu_level": "x86-64-v3"}).endswith("this CPU lacks fma")
    assert host.why_not({"cpu_level": "x86-64-v2"}) == ""


def test_without_torch_nothing_of_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert "not installed" in host.why_not({"torch": "2.13"})


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"arch": "sm_90", "driver": "12040"}, ""),
        ({"arch": "sm_80"}, "it is for sm_80, a GPU is sm_90"),
        ({"driver": "13010"}, "it needs a driver of CUDA 13.1, this one has 13.0"),
    ],
)
def test_a_gpu_artifact_needs_its_architecture_and_driver(
    monkeypatch: pytest.MonkeyPatch, rules: dict[str, str], reason: str
) -> None:
    gpu = Device(1, 0, "a GPU", "sm_90", 13000, 1 << 30)
    monkeypatch.setattr("vcc.engine.runtime.player.device.device_or_none", lambda: gpu)
    assert host.why_not(rules) == reason


def test_without_a_device_a_gpu_artifact_is_found_and_the_boot_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vcc.engine.runtime.player.device.device_or_none", lambda: None)
    assert host.why_not({"arch": "sm_80", "driver": "99000"}) == ""


def test_node_tables_of_another_version_are_for_another_vcc() -> None:
    """Those of version 1, which artifacts did not say, can lack memory for split keys."""
    assert host.why_not({"loader": "Player", "tables": "2"}) == ""
    told = "its node tables are of version {}, this vcc plays version 2"
    assert host.why_not({"loader": "Player"}) == told.format(1)
    assert host.why_not({"loader": "Player", "tables": "3"}) == told.format(3)
