"""Device profiles: a table of real devices, and files that a device writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.target import GPU_TARGETS, Target
from vcc.engine.torch_shim.profiles import (
    PROFILES,
    from_json,
    profile_for,
    read_profile,
    to_json,
)

H200 = PROFILES["sm_90"]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_profiles_to_json(profile) -> None:
    assert from_json(to_json(profile)) == profile
    assert profile.shared_per_block_optin < profile.shared_per_sm


def test_the_table_has_the_architectures_of_the_design() -> None:
    assert list(PROFILES) == ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
    assert PROFILES["sm_100"].capability == (10, 0)


def test_every_figure_is_in_the_digest() -> None:
    assert replace(H200, l2_cache=1).digest != H200.digest


@pytest.mark.parametrize("text", ["sm_90", "sm_90a", "cuda:sm_90"])
def test_profiles_profile_for(text: str) -> None:
    assert profile_for(Target.parse(text)) == H200


def test_a_target_may_say_how_many_multiprocessors() -> None:
    assert profile_for(Target.parse("sm_90:114")) == replace(H200, sm_count=114)


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        profile_for(Target.parse("sm_75"))
    assert all(name in caught.value.why for name in PROFILES)
    assert "vcc doctor --profile" in caught.value.hint


def test_a_profile_of_another_architecture_is_refused() -> None:
    with pytest.raises(ConfigError, match="is of sm_90"):
        profile_for(Target.parse("sm_80"), H200)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"l2_cache": None}, "'l2_cache' is None"),
        ({"sm_count": True}, "'sm_count' is True"),
        ({"sm_count": 0}, "'sm_count' is 0"),
        ({"colour": 1}, "'colour' is unknown"),
        ({"sm_count": 10**18}, "'sm_count' is 1000000000000000000"),
        ({"total_memory": 10**4000}, "'total_memory' is a huge number"),
        ({"warp_size": 64}, "'warp_size' is 64"),
        ({"name": "H200\x1b[31m\n"}, "'name' is "),
    ],
)
def test_profiles_from_json(change, said) -> None:
    with pytest.raises(ConfigError, match=said):
        from_json(json.dumps(json.loads(to_json(H200)) | change))


def test_profiles_read_profile(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    for text in ("[]", "{", json.dumps({"name": "x"})):
        file.write_text(text)
        with pytest.raises(ConfigError, match="cannot read the device profile"):
            read_profile(file)
    with pytest.raises(ConfigError, match="No such file"):
        read_profile(tmp_path / "none.json")
    file.write_text(to_json(H200))
    assert read_profile(file) == H200


def test_a_profile_that_never_ends_or_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        read_profile(Path("/dev/zero"))
    file = tmp_path / "deep.json"
    file.write_text("[" * 60_000)
    with pytest.raises(ConfigError, match="cannot read the device profile"):
        read_profile(file)


def test_the_targets_that_a_bad_target_is_told_are_those_of_the_table() -> None:
    assert tuple(PROFILES) == GPU_TARGETS
