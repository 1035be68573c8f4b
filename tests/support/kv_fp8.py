"""Checkpoints with scales for a KV cache in fp8, and transformers' logits over such a cache.

Written apart from the engine: keys and values are quantised and dequantised as they enter the cache
of transformers, which attention then reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from support.fp8_checkpoints import FP8, MOST, scheme

Scales = Mapping[int, tuple[float, float]]
"""Of keys and of values, by layer."""

SCALES = {0: (0.011, 0.007), 1: (0.02, 0.013), 2: (0.008, 0.03)}
"""Of the keys and of the values of each layer, all of them different."""

NAMES = ("k_scale", "v_scale")


def add_scales(
    directory: Path,
    scales: Scales,
    names: tuple[str, str] = NAMES,
    dtype: torch.dtype = torch.float32,
    shape: tuple[int, ...] = (1,),
) -> Path:
    """Give a checkpoint of support.fp8_checkpoints a scheme and scales for its cache."""
    file = directory / "model.safetensors"
    state = load_file(file)
    for layer, pair in scales.items():
        for name, value in zip(names, pair, strict=True):
            tensor = torch.full(shape, value).to(dtype)
            state[f"model.layers.{layer}.self_attn.{name}"] = tensor
    save_file(state, file, {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    fp8 = config["quantization_config"]["quant_method"] == "fp8"
    declared = "static" if fp8 else scheme("tensor", False)
    config["quantization_config"]["kv_cache_scheme"] = declared
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def held(x: Tensor, scale: float) -> Tensor:
    """What comes out of a cache in fp8, in the dtype that went in."""
    return ((x.float() / scale).clamp(-MOST, MOST).to(FP8).float() * scale).to(x.dtype)


def kv_logits(model: Any, ids: Sequence[int], scales: Scales) -> Tensor:
    """Logits [tokens, vocab] of a model of transformers over a cache in fp8."""
    from transformers import DynamicCache

    class Quantised(DynamicCache):
        def update(self, keys: Tensor, values: Tensor, layer: int, *args: Any, **more: Any) -> Any:
            by_key, by_value = scales.get(layer, (1.0, 1.0))
            return super().update(held(keys, by_key), held(values, by_value), layer, *args, **more)

    with torch.no_grad():
        given = torch.tensor([list(ids)])
        found: Tensor = model(given, past_key_values=Quantised(), use_cache=True).logits[0]
    return found


@lru_cache(maxsize=4)
def plain_model(directory: Path, dtype: torch.dtype) -> Any:
    """transformers' model of a checkpoint that is not quantised."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager"
    ).eval()
