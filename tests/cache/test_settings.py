"""Where the store lies."""

from __future__ import annotations

import re
from pathlib import Path

import platformdirs
import pytest
from support.sources import ROOT

from vcc.cache.errors import ConfigError
from vcc.cache.settings import (
    VARIABLE,
    Settings,
    cache_root,
    parse_size,
    read_settings,
    signing_secrets,
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_argument_comes_before_the_variable_before_the_default(monkeypatch, tmp_path):
    assert cache_root() == Path(platformdirs.user_cache_dir("vcc", appauthor=False))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "env"))
    assert cache_root() == tmp_path / "env"
    assert cache_root(tmp_path / "arg") == tmp_path / "arg"


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    assert cache_root().name == "vcc"


def test_relative_places_and_the_home_sign_become_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root(Path("a/../b")) == tmp_path / "b"
    monkeypatch.setenv(VARIABLE, "~/c")
    assert cache_root() == tmp_path / "c"


def test_every_variable_has_a_field_and_a_default() -> None:
    empty = read_settings({})
    assert empty == Settings(None, (), "", "", None, False, False, 0)
    full = read_settings(
        {
            "VCC_CACHE_DIR": "/a",
            "VCC_LOWER_DIRS": "/b::/c",
            "VCC_REMOTE": "s3://bucket/team",
            "VCC_POLICY": "prod",
            "VCC_TRUST_DIR": "/keys",
            "VCC_STRICT": "yes",
            "VCC_OFFLINE": "1",
            "VCC_MAX_SIZE": "20GB",
        }
    )
    assert full == Settings(
        Path("/a"),
        (Path("/b"), Path("/c")),
        "s3://bucket/team",
        "prod",
        Path("/keys"),
        True,
        True,
        20 * 10**9,
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("1.5kB", 1500),
        ("20 GiB", 20 << 30),
        ("3MiB", 3 << 20),
        ("2T", 2e12),
    ],
)
def test_sizes_are_read_in_both_units(text: str, size: int) -> None:
    assert parse_size(text, "--max-size") == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1XB", "inf", "nan", "1e30", "1 2"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-size"):
        parse_size(text, "--max-size")


@pytest.mark.parametrize(
    ("name", "value"), [("VCC_POLICY", "none"), ("VCC_STRICT", "maybe"), ("VCC_OFFLINE", "2")]
)
def test_a_variable_that_cannot_be_read_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_settings({name: value})


def test_signing_secrets_are_read_apart_from_what_may_be_shown():
    variables = {"VCC_SIGNING_KEY": "canary-key", "VCC_SIGNING_PASSPHRASE": "canary-word"}
    assert signing_secrets(variables) == ("canary-key", "canary-word")
    assert "canary" not in repr(read_settings(variables))
    assert signing_secrets({}) == ("", "")


def test_trusted_accounts_are_a_setting():
    assert read_settings({"VCC_TRUSTED_UIDS": "17,18"}).trusted_uids == (17, 18)


def test_every_variable_of_the_store_stands_in_the_documents():
    text = (ROOT / "cache/settings.py").read_text()
    names = set(re.findall(r'"((?:VCC|XDG)_[A-Z_]+)"', text))
    page = (ROOT / "docs/config.md").read_text()
    assert len(names) > 10
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
