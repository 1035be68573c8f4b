"""The tensors of a checkpoint: one safetensors file, or shards with an index.

Torch-free; reads headers only. Formats that need unpickling are refused, never opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.json_file import read_json
from vcc.engine.models.safetensors_header import read_header
from vcc.engine.models.tensor_info import TensorInfo

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.safetensors")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_CONVERT = (
    'convert it once where you trust it: python -c "import transformers as t; '
    "t.AutoModelForCausalLM.from_pretrained('DIR').save_pretrained('NEW_DIR')\""
)

GGUF = ".gguf"
GGUF_HINT = (
    "give the safetensors checkpoint that it was made from, or convert it back: "
    'python -c "import transformers as t; '
    "t.AutoModelForCausalLM.from_pretrained('DIR', gguf_file='FILE.gguf')"
    ".save_pretrained('NEW_DIR')\""
)


def tensors_in(place: Path) -> Mapping[str, TensorInfo]:
    """Every tensor of a checkpoint by name.

    Args:
        place: a directory with `model.safetensors` or shards and their index, or one file.

    Raises:
        ModelError: no weights are there, they are only in part here, or not in safetensors form.
    """
    if place.suffix == GGUF and place.exists():
        raise is_gguf(str(place))
    if place.is_file():
        return read_header(place)
    if (place / INDEX).is_file():
        return _sharded(place)
    if (place / SINGLE).is_file():
        return read_header(place / SINGLE)
    raise _no_weights(place)


def has_gguf(place: Path) -> bool:
    """Whether a directory holds weights in GGUF form."""
    return place.is_dir() and any(place.glob(f"*{GGUF}"))


def is_gguf(name: str) -> ModelError:
    """The refusal of weights in GGUF form."""
    return ModelError(f"{name} is GGUF", "GGUF is not supported", GGUF_HINT)


def _sharded(place: Path) -> Mapping[str, TensorInfo]:
    weight_map = _weight_map(place / INDEX)
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if not (place / shard).is_file()]
    if missing:
        raise ModelError(
            f"the model in {place} is only in part here",
            f"missing: {_listed(missing)}, named by {INDEX}",
            "finish the download",
        )
    tensors: dict[str, TensorInfo] = {}
    for shard in shards:
        found = read_header(place / shard)
        _check_shard(place, shard, found, tensors)
        tensors.update(found)
    lost = [name for name, shard in weight_map.items() if _shard_of(tensors, name) != shard]
    if lost:
        raise ModelError(
            f"{INDEX} and the shards in {place} disagree",
            f"not where the index says: {_listed(lost)}",
            "download the checkpoint again",
        )
    return tensors


def _shard_of(tensors: Mapping[str, TensorInfo], name: str) -> str | None:
    info = tensors.get(name)
    return info.file.name if info is not None and info.file is not None else None


def _check_shard(
    place: Path, shard: str, found: Mapping[str, TensorInfo], before: Mapping[str, TensorInfo]
) -> None:
    twice = sorted(found.keys() & before.keys())
    if twice:
        raise ModelError(
            f"the shards in {place} overlap",
            f"{shard} and {_shard_of(before, twice[0])} both hold {twice[0]}",
            "download the checkpoint again",
        )


def _weight_map(index: Path) -> Mapping[str, str]:
    weight_map: Any = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(
            f"{index} has no weight_map",
            "it does not say where tensors are",
            "download the checkpoint again",
        )
    for shard in weight_map.values():
        if not isinstance(shard, str) or not _FILE_NAME.fullmatch(shard):
            raise ModelError(
                f"{index} names a shard that is not a plain file name",
                f"it is {shard!r:.80}",
                "download the checkpoint again",
            )
    return weight_map


def _listed(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")


def _no_weights(place: Path) -> ModelError:
    shards = sorted(path.name for path in place.glob("*") if _SHARD.fullmatch(path.name))
    if shards:
        return ModelError(
            f"the model in {place} is only in part here",
            f"{INDEX} is missing beside {shards[0]}",
            "finish the download",
        )
    pickled = sorted(path.name for pattern in _PICKLED for path in place.glob(pattern))
    if pickled:
        return ModelError(
            f"the checkpoint in {place} is not in safetensors form",
            f"{pickled[0]} is a pickle, and loading a pickle runs code that it contains",
            _CONVERT,
        )
    if has_gguf(place):
        return is_gguf(f"the checkpoint in {place}")
    return ModelError(
        f"no weights in {place}",
        f"neither {SINGLE} nor {INDEX} is there",
        "use --weights none to compile without them, or --weights PATH",
    )
