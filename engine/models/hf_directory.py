"""A Hugging Face style directory: config, weights, tokenizer and generation settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.bindings import check, expected_tensors, laid_out, stored_kinds
from vcc.engine.models.checkpoint import GGUF_HINT, has_gguf, tensors_in
from vcc.engine.models.checkpoint_forward import checkpoint_ref, forward_name
from vcc.engine.models.json_file import read_json
from vcc.engine.models.quant.scales import check_scales
from vcc.engine.models.quant.spec import FP8
from vcc.engine.models.remote_code import remote_code
from vcc.engine.models.tensor_info import SIZES, TensorInfo

NO_WEIGHTS = "none"
FLOATS = ("float64", "float32", "bfloat16", "float16")
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True, slots=True)
class HfDirectory:
    """What a model directory holds, read without torch.

    Attributes:
        config: `config.json`.
        generation: `generation_config.json`, over the token ids of `config.json`.
        tensors: the checkpoint's tensors, or those the config implies, without data.
        tokenizer: `tokenizer.json`, or None.
        code: (name, digest) of code that the checkpoint brings along.
    """

    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    tokenizer: Path | None
    code: tuple[tuple[str, str], ...] = ()


def read_directory(place: Path, weights: str | None, trusted: bool = False) -> HfDirectory:
    """Read and check a model directory.

    Args:
        place: the directory.
        weights: None for the directory's own, `none` for no data, or another directory or file.
        trusted: the user accepts that the checkpoint has code of its own, which is not run.

    Raises:
        ModelError: something is missing, in part here, unsupported or contradictory.
    """
    config = _config(place)
    _check_dtype(config)
    if forward_name(config) is not None:
        return _forward(config, place, weights, trusted)
    spec = spec_of(config)
    code = remote_code(config, place, trusted)
    if weights == NO_WEIGHTS:
        dtype, kinds = declared_dtype(config) or "float32", stored_kinds(spec)
        tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(FP8 if kinds.get(name) == "fp8" else dtype, shape)
            for name, shape in expected_tensors(spec).items()
        }
    else:
        tensors = tensors_in(place if weights is None else weights_place(weights))
        spec = laid_out(spec, tensors)
        check(spec, tensors)
        check_scales(spec, tensors)
    tokenizer = place / "tokenizer.json"
    return HfDirectory(
        config,
        _generation(place, config),
        tensors,
        tokenizer if tokenizer.is_file() else None,
        code,
    )


def _forward(
    config: Mapping[str, Any], place: Path, weights: str | None, trusted: bool
) -> HfDirectory:
    """An encoder or a vision model: its build holds the tensors against the model."""
    checkpoint_ref(config)
    none = weights == NO_WEIGHTS
    tokenizer = place / "tokenizer.json"
    return HfDirectory(
        config,
        {},
        {} if none else tensors_in(place if weights is None else weights_place(weights)),
        tokenizer if tokenizer.is_file() else None,
        remote_code(config, place, trusted),
    )


def declared_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype that a config declares for its weights, by torch's name."""
    declared = config.get("dtype") or config.get("torch_dtype")
    name = declared.removeprefix("torch.") if isinstance(declared, str) else ""
    return name if name in SIZES else None


def _check_dtype(config: Mapping[str, Any]) -> None:
    """Refuse a declared dtype that no weights are computed in; null leaves it to the weights."""
    for name in ("dtype", "torch_dtype"):
        given = config.get(name)
        if given is not None and str(given).removeprefix("torch.") not in FLOATS:
            raise ModelError(
                f"{name} of config.json is not a dtype of weights",
                f"it is {given!r:.80}",
                f"known: {', '.join(FLOATS)}; null takes that of the weights",
            )


def _config(place: Path) -> Mapping[str, Any]:
    file = place / "config.json"
    if not file.is_file():
        gguf = has_gguf(place)
        also = "; its weights are GGUF, which is not supported" if gguf else ""
        raise ModelError(
            f"{place} is not a model directory",
            "it has no config.json" + also,
            GGUF_HINT if gguf else "give a directory in Hugging Face form, or finish its download",
        )
    return read_json(file)


def _generation(place: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    file = place / "generation_config.json"
    ids = {name: config[name] for name in _TOKEN_IDS if config.get(name) is not None}
    return {**ids, **(read_json(file) if file.is_file() else {})}


def weights_place(weights: str) -> Path:
    """Where `--weights PATH` points.

    Raises:
        ModelError: there is nothing.
    """
    place = Path(weights).expanduser()
    if not place.exists():
        raise ModelError(
            f"no weights at {weights}",
            "there is no such file or directory",
            "give a directory or a safetensors file",
        )
    return place
