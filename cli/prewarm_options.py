"""A build of a prewarm file as options of vcc compile: for this process, and as words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.cli.request import ModelOptions

if TYPE_CHECKING:
    from vcc.engine.prewarm.matrix import Cell

_BESIDE = ("model", "weights", "target_profile")
"""Values that may be paths: those that begin with a dot count from the folder of the file."""


def model_options(file: Path, cell: Cell, jobs: int) -> ModelOptions:
    """A build's options, as the command line would give them."""
    said = _said(file, cell)
    model = said.pop("model")
    given = {NAMES[name][0]: NAMES[name][2](value) for name, value in said.items()}
    return ModelOptions(model, **given, jobs=jobs)


def words_of(file: Path, cell: Cell, jobs: int) -> list[str]:
    """The same options as words after `vcc compile`."""
    said = _said(file, cell)
    words = [said.pop("model")]
    for name, value in said.items():
        if isinstance(value, bool):  # a flag is there or not
            words += [NAMES[name][1]] * value
            continue
        for one in _texts(name, value):
            words += [NAMES[name][1], one]
    return [*words, "--jobs", str(jobs)]


def _said(file: Path, cell: Cell) -> dict[str, Any]:
    said = {"model": cell.model, **cell.fields}
    for name in _BESIDE:
        if str(said.get(name, "")).startswith(("./", "../")):
            said[name] = str(file.parent / said[name])
    return said


def _texts(name: str, value: Any) -> Iterator[str]:
    if NAMES[name][2] is _list:  # an option that is repeated
        yield from _list(value)
    else:
        yield str(NAMES[name][2](value))


def _same(value: Any) -> Any:
    return value


def _list(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


NAMES: Mapping[str, tuple[str, str, Callable[[Any], Any]]] = {
    "target": ("target", "--target", _same),
    "dtype": ("dtype", "--dtype", _same),
    "kv_cache_dtype": ("kv_cache_dtype", "--kv-cache-dtype", _same),
    "mode": ("mode", "--mode", _same),
    "compile": ("compile", "--compile", _same),
    "opt_level": ("level", "--opt-level", str),
    "shapes": ("shapes", "--shapes", lambda value: ",".join(_list(value))),
    "compilation_config": ("config", "--compilation-config", json.dumps),
    "target_profile": ("target_profile", "--target-profile", Path),
    "weights": ("weights", "--weights", _same),
    "revision": ("revision", "--revision", _same),
    "trust_remote_code": ("trust_remote_code", "--trust-remote-code", _same),
    "shape": ("inputs", "--shape", _list),
    "max_model_len": ("max_model_len", "--max-model-len", _same),
    "max_num_seqs": ("max_num_seqs", "--max-num-seqs", _same),
    "max_num_batched_tokens": ("max_num_batched_tokens", "--max-num-batched-tokens", _same),
    "enable_lora": ("enable_lora", "--enable-lora", _same),
    "max_loras": ("max_loras", "--max-loras", _same),
    "max_lora_rank": ("max_lora_rank", "--max-lora-rank", _same),
    "lora_target_modules": ("lora_target_modules", "--lora-target-modules", _list),
}
"""Field of the file: field of `ModelOptions`, option, and how its value is written there."""
