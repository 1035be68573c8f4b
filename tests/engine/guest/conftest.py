"""A store and a temporary folder of a guest's own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from vcc.cache.store import Store


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's user: temporary folder, trust, remote."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VCC_REMOTE", "VCC_POLICY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", on_damage=lambda damage: None)
