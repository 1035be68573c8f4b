"""Random adapters as PEFT writes them, and checkpoints with adapters merged into their weights."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

ATTENTION = tuple(f"self_attn.{one}_proj" for one in "qkvo")
GATED = tuple(f"mlp.{one}_proj" for one in ("gate", "up", "down"))
PREFIX = "base_model.model."


def make_adapter(
    directory: Path,
    checkpoint: Path,
    *,
    rank: int = 8,
    alpha: float = 12.0,
    modules: Sequence[str] = (*ATTENTION, *GATED),
    layers: Sequence[int] | None = None,
    ranks: Mapping[str, int] | None = None,
    dtype: str = "float32",
    seed: int = 0,
    **fields: Any,
) -> Path:
    """Write an adapter with every value redrawn, large enough to change the model's answers.

    Args:
        directory: made if it is missing.
        checkpoint: the model it is for.
        rank, alpha, ranks: `r`, `lora_alpha` and `rank_pattern`.
        modules: within a layer.
        layers: numbers; None means all.
        dtype: of the stored matrices.
        seed: of the values.
        fields: further fields of `adapter_config.json`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    weights, generator = load_file(checkpoint / "model.safetensors"), torch.Generator()
    generator.manual_seed(seed)
    tensors = {}
    for name in sorted(weights):
        module = name.removesuffix(".weight")
        if not module.endswith(tuple(modules)) or not name.endswith(".weight"):
            continue
        if layers is not None and int(module.split(".")[2]) not in layers:
            continue
        own = next((r for key, r in (ranks or {}).items() if module.endswith(key)), rank)
        outer, inner = weights[name].shape
        # So that scale * B @ A is about half as large as the weights: answers change, and a step is
        # no worse conditioned than the model's own.
        scale = alpha / (math.sqrt(own) if fields.get("use_rslora") else own)
        size = 0.5 * weights[name].float().std() / (scale * math.sqrt(own))
        a = torch.randn(own, inner, generator=generator)
        b = torch.randn(outer, own, generator=generator) * size
        for which, data in (("A", a), ("B", b)):
            tensors[f"{PREFIX}{module}.lora_{which}.weight"] = data.to(getattr(torch, dtype))
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted({one.rpartition(".")[2] for one in modules}),
        "bias": "none",
        "use_dora": False,
        "use_rslora": False,
        "rank_pattern": dict(ranks or {}),
        "alpha_pattern": {},
        "modules_to_save": None,
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "task_type": "CAUSAL_LM",
    }
    text = json.dumps(config | fields, indent=1)
    (directory / "adapter_config.json").write_text(text, encoding="utf-8")
    return directory


def merged(directory: Path, checkpoint: Path, adapter: Path) -> Path:
    """The checkpoint with an adapter's W + scale * B @ A, in fp32, by a formula of its own."""
    shutil.copytree(checkpoint, directory)
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    weights = load_file(checkpoint / "model.safetensors")
    weights = {name: one.float() for name, one in weights.items()}
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name, a in tensors.items():
        if ".lora_A." not in name:
            continue
        b, module = tensors[name.replace(".lora_A.", ".lora_B.")], name.removeprefix(PREFIX)
        module = module.removesuffix(".lora_A.weight")
        rank, alpha = a.shape[0], config["lora_alpha"]
        for key, one in config["alpha_pattern"].items():
            alpha = one if module.endswith(key) else alpha
        scale = alpha / (math.sqrt(rank) if config["use_rslora"] else rank)
        weights[f"{module}.weight"] += scale * (b.double() @ a.double()).float()
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory
