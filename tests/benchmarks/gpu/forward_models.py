"""Encoders and vision models with random bf16 weights: python forward_models.py NAME DIR.

Every parameter is drawn, with a spread that keeps values near one through all layers; so are the
running means and variances of a residual network. Inputs are drawn too, from a seed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOKENS = 128
PIXELS = 224
Inputs = dict[str, NDArray[Any]]


def texts(vocabulary: int, batch: int, seed: int) -> Inputs:
    """Token ids [batch, 128]; of several texts every other one is shorter and padded."""
    random = np.random.default_rng(seed)
    ids = random.integers(1000, vocabulary, (batch, TOKENS), np.int64)
    mask = np.ones_like(ids)
    mask[1::2, TOKENS * 3 // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def images(batch: int, seed: int) -> Inputs:
    """Pixels [batch, 3, 224, 224] in fp32."""
    random = np.random.default_rng(seed)
    return {"pixel_values": random.standard_normal((batch, 3, PIXELS, PIXELS), np.float32)}


@dataclass(frozen=True)
class Kind:
    """A model of `transformers`.

    Attributes:
        model, config: names of its classes.
        fields: of the config, where they are not the defaults.
    """

    model: str
    config: str
    fields: Mapping[str, Any]

    @property
    def reads_text(self) -> bool:
        """Whether it takes token ids, and not pixels."""
        return self.config == "BertConfig"

    def inputs(self, batch: int, seed: int = 0) -> Inputs:
        """What it is given."""
        return texts(30522, batch, seed) if self.reads_text else images(batch, seed)

    def shapes(self, batch: int | str) -> list[str]:
        """Its declared inputs, as `--shape` takes them; `batch` may be a range."""
        one = self.inputs(1)
        sizes = {name: "x".join(map(str, value.shape[1:])) for name, value in one.items()}
        return [f"{name}={batch}x{size}" for name, size in sizes.items()]


SMALL = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
KINDS: Mapping[str, Kind] = {
    "bert": Kind("BertModel", "BertConfig", {}),
    "minilm": Kind("BertModel", "BertConfig", {**SMALL, "num_attention_heads": 12}),
    "vit": Kind("ViTForImageClassification", "ViTConfig", {"num_labels": 1000}),
    "resnet": Kind("ResNetForImageClassification", "ResNetConfig", {"num_labels": 1000}),
    "tiny": Kind(
        "BertModel",
        "BertConfig",
        {
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 128,
        },
    ),
}
"""BERT base, all-MiniLM-L6, ViT-B/16, ResNet-50 (fields not named are defaults); one for tests."""


def write_model(name: str, out: Path, seed: int = 0) -> None:
    """Write a checkpoint directory."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind = KINDS[name]
    config = getattr(transformers, kind.config)(**kind.fields)
    with torch.device("meta"):
        model = getattr(transformers, kind.model)(config)
    model.to_empty(device="cpu").to(torch.bfloat16)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor_name, tensor in (*model.named_parameters(), *model.named_buffers()):
            _draw(tensor_name, tensor, generator, drawers(torch))
    model.save_pretrained(out)


Draw = Callable[[Any, Any], Any]


def drawers(torch: Any) -> Mapping[str, Draw]:
    """By the end of a name: what a tensor is filled with, of its shape and a generator."""

    def even(low: float, high: float) -> Draw:
        return lambda shape, by: torch.rand(shape, generator=by) * (high - low) + low

    return {
        "running_var": even(0.5, 1.5),
        "running_mean": even(-0.2, 0.2),
        "bias": even(-0.1, 0.1),
        "norm": even(0.7, 1.3),
    }


def _draw(name: str, tensor: Any, generator: Any, by_end: Mapping[str, Draw]) -> None:
    import torch

    if not tensor.is_floating_point():  # positions, and counts of batches
        line = torch.arange(tensor.numel()).reshape(tensor.shape)
        tensor.copy_(line if name.endswith("position_ids") else torch.zeros_like(tensor))
        return
    found = next((draw for end, draw in by_end.items() if name.endswith(end)), None)
    if found is None and tensor.dim() == 1:  # weights of norms
        found = by_end["norm"]
    if found is None:
        depth = tensor[0].numel()
        tensor.copy_(torch.randn(tensor.shape, generator=generator) / depth**0.5)
    else:
        tensor.copy_(found(tensor.shape, generator))


def main() -> None:
    """Write one model unless it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(KINDS))
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    if not (options.out / "written").exists():
        write_model(options.name, options.out)
        (options.out / "written").touch()
    print(json.dumps({"seconds": round(time.perf_counter() - start, 2)}))


if __name__ == "__main__":
    main()
