"""An adapter for the demo, as PEFT saves one: random, so its answers mean nothing."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK, HIDDEN, LAYERS = 8, 256, 4

folder = Path("adapters/style")
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
tensors = {}
for layer in range(LAYERS):
    module = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
    tensors[f"{module}.lora_A.weight"] = torch.randn(RANK, HIDDEN) * 0.1
    tensors[f"{module}.lora_B.weight"] = torch.randn(HIDDEN, RANK) * 0.1
save_file(tensors, folder / "adapter_model.safetensors")
config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj"]}
(folder / "adapter_config.json").write_text(json.dumps(config))
