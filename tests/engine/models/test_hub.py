"""Hugging Face ids: the local cache is enough, and what is missing is said without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.checkpoints import make_checkpoint

from vcc.cache.errors import ModelError
from vcc.engine.models import hub
from vcc.engine.models.hub import HubPlace, find_model
from vcc.engine.models.source import open_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "Some-Org/tiny.model"


@pytest.fixture
def place(tmp_path: Path) -> HubPlace:
    """A cache laid out as huggingface_hub does, offline."""
    folder = tmp_path / "models--Some-Org--tiny.model"
    blobs, snapshot = folder / "blobs", folder / "snapshots" / COMMIT
    make_checkpoint(blobs, "llama", shards=2)
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(f"../../blobs/{blob.name}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    return HubPlace(tmp_path, offline=True)


def snapshot(place: HubPlace) -> Path:
    return place.cache / "models--Some-Org--tiny.model" / "snapshots" / COMMIT


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_an_id_is_found_by_branch_or_commit(revision: str | None, place: HubPlace) -> None:
    source = open_source(NAME, revision=revision, hub=place)
    assert (source.directory, source.revision) == (snapshot(place), COMMIT)
    assert source.has_weights


def test_an_id_and_its_directory_have_one_title(place: HubPlace) -> None:
    assert open_source(NAME, hub=place).title == NAME
    assert open_source(str(snapshot(place))).title == NAME


def test_an_id_and_its_directory_ask_for_the_same_artifact(place: HubPlace) -> None:
    by_id = open_source(NAME, hub=place).model_key()
    assert by_id == open_source(str(snapshot(place))).model_key()


def test_an_id_that_is_not_here_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not ready") as caught:
        open_source("no/model", hub=HubPlace(tmp_path, offline=True))
    assert str(tmp_path) in caught.value.why
    assert "HF_HUB_OFFLINE" in caught.value.why
    assert "hf download no/model" in caught.value.hint


def test_a_half_downloaded_snapshot_names_the_shard(place: HubPlace) -> None:
    shard = sorted(snapshot(place).glob("*.safetensors"))[-1]
    shard.unlink()
    with pytest.raises(ModelError) as caught:
        open_source(NAME, hub=place)
    assert shard.name in caught.value.why
    assert not open_source(NAME, weights="none", hub=place).has_weights


def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught:
        find_model(NAME, None, HubPlace(tmp_path, offline=False), wants_weights=True)
    assert "pip install 'huggingface-hub>=" in caught.value.hint


def test_a_download_that_fails_is_one_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def refuse(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        raise ConnectionError("no route to host\nand a long trace")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=refuse))
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(ModelError, match="not ready") as caught:
        find_model(NAME, "v1", HubPlace(tmp_path, offline=False), wants_weights=False)
    assert "no route to host" in caught.value.why
    assert "long trace" not in caught.value.why
    assert asked["revision"] == "v1"
    assert not any("safetensors" in pattern for pattern in asked["allow_patterns"])


def test_a_download_is_used(place: HubPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(snapshot_download=lambda name, **_: str(snapshot(place)))
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: object())
    online = HubPlace(place.cache, offline=False)
    assert find_model(NAME, "v2", online, wants_weights=True).commit == COMMIT


@pytest.mark.parametrize("revision", ["../main", "a/../../b", "/etc", " main", "-x"])
def test_a_revision_cannot_leave_the_cache(revision: str, place: HubPlace) -> None:
    with pytest.raises(ModelError, match="not a Hugging Face id"):
        open_source(NAME, revision=revision, hub=place)


def test_a_damaged_ref_is_not_followed(place: HubPlace) -> None:
    (place.cache / "models--Some-Org--tiny.model" / "refs" / "main").write_text("../../../etc")
    with pytest.raises(ModelError, match="not ready"):
        open_source(NAME, hub=place)
