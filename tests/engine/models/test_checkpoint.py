"""Finding the tensors of a checkpoint: shards, half downloads, and formats that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vcc.cache.errors import ModelError
from vcc.engine.models.checkpoint import INDEX, SINGLE, tensors_in
from vcc.engine.models.hf_directory import read_directory
from vcc.engine.models.source import open_source

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_file({"a": torch.ones(2), "b": torch.ones(3)}, tmp_path / FIRST)
    save_file({"c": torch.ones(4)}, tmp_path / SECOND)
    index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND})
    return tmp_path


def index(place: Path, weight_map: Any) -> None:
    (place / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_shards_are_joined(sharded: Path) -> None:
    found = tensors_in(sharded)
    assert {name: info.file.name for name, info in found.items() if info.file} == {
        "a": FIRST,
        "b": FIRST,
        "c": SECOND,
    }


def test_one_file_may_be_named_directly(sharded: Path) -> None:
    assert tensors_in(sharded / SECOND).keys() == {"c"}


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    with pytest.raises(ModelError, match="only in part") as caught:
        tensors_in(sharded)
    assert SECOND in caught.value.why
    assert "download" in caught.value.hint


def test_shards_without_their_index_are_a_half_download(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(ModelError, match="only in part") as caught:
        tensors_in(sharded)
    assert INDEX in caught.value.why


def test_a_tensor_that_no_shard_holds_is_named(sharded: Path) -> None:
    index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND})
    with pytest.raises(ModelError, match="disagree") as caught:
        tensors_in(sharded)
    assert "d" in caught.value.why


def test_a_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    save_file({"c": torch.ones(4), "a": torch.ones(2)}, sharded / SECOND)
    with pytest.raises(ModelError, match="overlap"):
        tensors_in(sharded)


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/x.safetensors", "x.bin", "", ".x.safetensors", 1, None]
)
def test_a_shard_outside_the_directory_is_refused(shard: Any, sharded: Path) -> None:
    index(sharded, {"a": shard})
    with pytest.raises(ModelError, match="not a plain file name"):
        tensors_in(sharded)


@pytest.mark.parametrize("weight_map", [None, {}, [], "x"])
def test_an_index_without_a_map_is_refused(weight_map: Any, sharded: Path) -> None:
    index(sharded, weight_map)
    with pytest.raises(ModelError, match="weight_map"):
        tensors_in(sharded)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_a_pickled_checkpoint_is_refused_and_never_opened(name: str, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    (tmp_path / name).write_bytes(f"cos\nsystem\n(S'touch {trap}'\ntR.".encode())
    with pytest.raises(ModelError, match="safetensors") as caught:
        tensors_in(tmp_path)
    assert name in caught.value.why
    assert "save_pretrained" in caught.value.hint
    assert not trap.exists()


def test_gguf_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for place in (tmp_path, tmp_path / "m.gguf"):
        with pytest.raises(ModelError, match="GGUF is not supported") as told:
            tensors_in(place)
        assert "gguf_file='FILE.gguf'" in told.value.hint
    with pytest.raises(ModelError) as caught:
        read_directory(tmp_path, None)
    assert "its weights are GGUF, which is not supported" in caught.value.why
    assert caught.value.hint == told.value.hint
    with pytest.raises(ModelError, match="is GGUF") as named:
        open_source(str(tmp_path / "m.gguf"))
    assert named.value.hint == told.value.hint


def test_no_weights_at_all_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no weights") as caught:
        tensors_in(tmp_path)
    assert SINGLE in caught.value.why
    assert "--weights none" in caught.value.hint
