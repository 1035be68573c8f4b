"""What an artifact says of its model to whoever gets it in a pack or from a remote."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support.checkpoints import make_checkpoint
from support.flow import ask, built

from vcc.cache.store import Store


def test_a_manifest_has_the_name_of_the_directory_and_not_its_path(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "private" / "llama", "llama")
    found = built(ask(model, compile="none", mode="none"), Store(tmp_path / "store"))
    manifest = found.loaded.manifest
    assert manifest.title.split(" · ")[0] == "llama"
    assert manifest.info["model"]["source"] == "llama"
    assert str(tmp_path).encode() not in msgspec.json.encode(manifest)
