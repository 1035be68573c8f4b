"""Where the store lies."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from vcc.cache.settings import VARIABLE, cache_root


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
