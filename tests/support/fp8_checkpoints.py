"""Small checkpoints with fp8 weights in each layout, and transformers' logits for them.

Everything here is written apart from the engine: layouts as compressed-tensors and transformers
document them, and a reference that dequantises weights and quantises activations by hooks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from support.checkpoints import make_checkpoint
from support.fp8_experts import EXPERT_SIZES, quantise_experts, see_experts, spread_of

FP8, MOST, BLOCK = torch.float8_e4m3fn, 448.0, 128

SCHEME: dict[str, Any] = {
    "num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "actorder": None,
    "block_structure": None, "observer": "minmax", "observer_kwargs": {},
}  # fmt: skip


def scheme(strategy: str, dynamic: bool, **more: Any) -> dict[str, Any]:
    """A quantisation scheme as llm-compressor writes it."""
    return {**SCHEME, "strategy": strategy, "dynamic": dynamic, **more}


def compressed(weights: dict[str, Any], activations: dict[str, Any] | None) -> dict[str, Any]:
    """A `quantization_config` of the compressed-tensors layout."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {**group, "output_activations": None}},
        "ignore": ["lm_head", "re:.*mlp.gate$", "re:.*expert_gate$", "re:.*mlp.experts.*"],
        "kv_cache_scheme": None,
        "global_compression_ratio": 1.5,
    }


LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor-static": compressed(scheme("tensor", False), scheme("tensor", False)),
    "tensor-token": compressed(scheme("tensor", False), scheme("token", True)),
    "channel-static": compressed(scheme("channel", False), scheme("tensor", False)),
    "channel-token": compressed(scheme("channel", False), scheme("token", True)),
    "block": compressed(
        scheme("block", False, block_structure=[BLOCK, BLOCK]),
        scheme("group", True, group_size=BLOCK),
    ),
    "fp8-block": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
    },
    "fp8-static": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": []},
}
"""What `config.json` says in each layout: weights, then activations."""


def with_experts(layout: str) -> dict[str, Any]:
    """What `config.json` says where experts are quantised too."""
    declared = LAYOUTS[layout]
    if "ignore" in declared:
        kept = [name for name in declared["ignore"] if "experts" not in name]
        return {**declared, "ignore": [*kept, "re:.*block_sparse_moe.gate$"]}
    gates = [f"model.layers.{i}.mlp.{n}" for i in range(3) for n in ("gate", "shared_expert_gate")]
    return {**declared, "modules_to_not_convert": ["lm_head", *gates]}


BLOCK_SIZES: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "num_key_value_heads": 4, "head_dim": 32,
}  # fmt: skip
"""Sizes that whole blocks fit into."""


def make_fp8_checkpoint(
    directory: Path,
    arch: str,
    layout: str,
    *,
    scale_dtype: torch.dtype = torch.float32,
    seed: int = 0,
    experts: bool = False,
    **overrides: Any,
) -> Path:
    """Write a small checkpoint with every parameter redrawn and its projections in fp8.

    Args:
        directory: made if it is missing.
        arch: key of `support.checkpoints.ARCHITECTURES`.
        layout: key of LAYOUTS.
        scale_dtype: of the stored scales.
        seed: of the weights.
        experts: are fp8 too.
        overrides: config fields.
    """
    sizes = (BLOCK_SIZES | EXPERT_SIZES.get(arch, {})) if "block" in layout else {}
    make_checkpoint(directory, arch, dtype="bfloat16", seed=seed, **{**sizes, **overrides})
    config = json.loads((directory / "config.json").read_text())
    file = directory / "model.safetensors"
    state, declared = load_file(file), with_experts(layout) if experts else LAYOUTS[layout]
    names = [name for name in state if is_projection(name) or (experts and is_expert(name))]
    scales = _input_scales(directory, names) if layout.endswith("static") else {}
    for name in names:
        weight, scale = quantised_weight(state[name].float(), layout)
        state[name] = weight
        module, last = name.removesuffix(".weight"), "weight_scale"
        state[f"{module}.{last}_inv" if layout == "fp8-block" else f"{module}.{last}"] = scale.to(
            scale_dtype
        )
        if name in scales:
            state[f"{module}.input_scale"] = scales[name].to(scale_dtype)
    save_file({name: one.contiguous() for name, one in state.items()}, file, {"format": "pt"})
    (directory / "config.json").write_text(json.dumps({**config, "quantization_config": declared}))
    return directory


def altered(directory: Path, place: Path, tensors: Mapping[str, Tensor | None]) -> Path:
    """A copy of a checkpoint in which some tensors are others, or missing where None."""
    state = load_file(directory / "model.safetensors")
    for name, tensor in tensors.items():
        state.pop(name, None)
        if tensor is not None:
            state[name] = tensor
    save_file(state, place / "model.safetensors", {"format": "pt"})
    (place / "config.json").write_text((directory / "config.json").read_text())
    return place


def is_projection(name: str) -> bool:
    """Whether a tensor is the weight of a projection of a layer."""
    return name.endswith("_proj.weight") and "experts" not in name


def is_expert(name: str) -> bool:
    """Whether a tensor is the weight of a projection of an expert."""
    return ".experts." in name and name.endswith(".weight")


def quantised_weight(weight: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """A weight in fp8 and its scale, in the shape that the layout stores."""
    if "block" in layout:
        rows, columns = (-(-size // BLOCK) for size in weight.shape)
        padded = torch.zeros(rows * BLOCK, columns * BLOCK)
        padded[: weight.shape[0], : weight.shape[1]] = weight
        cut = padded.view(rows, BLOCK, columns, BLOCK)
        scale = cut.abs().amax((1, 3)).clamp(min=1e-12) / MOST
        whole = (cut / scale[:, None, :, None]).view_as(padded)
        return _to_fp8(whole[: weight.shape[0], : weight.shape[1]]), scale
    if layout.startswith("channel"):
        scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / MOST
        return _to_fp8(weight / scale), scale
    scale = weight.abs().max() / MOST
    return _to_fp8(weight / scale), scale.reshape(1)


def _to_fp8(x: Tensor) -> Tensor:
    return x.clamp(-MOST, MOST).to(FP8)


def fake_quantised(x: Tensor, layout: str, scale: Tensor | None) -> Tensor:
    """What an activation is after quantisation, in its own dtype."""
    wide = x.float()
    if scale is None and "block" in layout:
        wide = wide.unflatten(-1, (-1, BLOCK))
    if scale is None:
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-10) / MOST
    return (_to_fp8(wide / scale).float() * scale).reshape(x.shape).to(x.dtype)


def _input_scales(directory: Path, names: Sequence[str]) -> Mapping[str, Tensor]:
    """Largest magnitudes of the inputs over one prompt, with a margin, over 448."""
    model = _plain(directory)
    seen: dict[str, Tensor] = {}
    for name, module in _projections(model):
        module.register_forward_pre_hook(
            lambda _, given, name=name: seen.update({name: given[0].abs().max()})
        )
    ids = torch.randint(4, model.config.vocab_size, (1, 64), generator=torch.Generator())
    see_experts(model, names, seen)
    with torch.no_grad():
        model(ids)
    return {name: (seen[name] * 1.2 * spread_of(name) / MOST).reshape(1) for name in names}


def _plain(directory: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def _projections(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and is_projection(f"{name}.weight"):
            yield f"{name}.weight", module


def dequantised(directory: Path) -> dict[str, Tensor]:
    """Every weight in fp32, scales multiplied in."""
    state = load_file(directory / "model.safetensors")
    found = {}
    for name, tensor in state.items():
        if name.endswith(("_scale", "_scale_inv")):
            continue
        if tensor.dtype == FP8:
            scale = state.get(f"{name}_scale", state.get(f"{name}_scale_inv"))
            tensor = tensor.float() * _spread(scale.float(), tensor)
        found[name] = tensor.float()
    return found


def _spread(scale: Tensor, weight: Tensor) -> Tensor:
    if scale.numel() == 1 or (scale.shape[-1] == 1 and scale.shape[0] == weight.shape[0]):
        return scale.reshape(-1, 1)
    rows, columns = weight.shape
    return scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]


@lru_cache(maxsize=4)
def fp8_reference(directory: Path, layout: str, dtype: torch.dtype, moving: bool = True) -> Any:
    """transformers' model of a checkpoint with dequantised weights.

    Args:
        directory: of `make_fp8_checkpoint`.
        layout: the layout it was made in.
        dtype: of weights and activations.
        moving: whether the activations of projections are quantised too.
    """
    plain = directory / "dequantised"
    plain.mkdir(exist_ok=True)
    config = json.loads((directory / "config.json").read_text())
    del config["quantization_config"]
    (plain / "config.json").write_text(json.dumps(config))
    save_file(dequantised(directory), plain / "model.safetensors", {"format": "pt"})
    model = _plain(plain)
    state = load_file(directory / "model.safetensors")
    if moving:
        quantise_experts(model, state, lambda x, scale: fake_quantised(x, layout, scale))
    for name, module in _projections(model) if moving else ():
        scale = state.get(name.replace(".weight", ".input_scale"))
        given = None if scale is None else scale.float()
        module.register_forward_pre_hook(
            lambda _, x, given=given: (fake_quantised(x[0], layout, given), *x[1:])
        )
    return model.to(dtype).eval()


def fp8_logits(
    directory: Path, layout: str, ids: Sequence[int], dtype: torch.dtype, moving: bool = True
) -> Tensor:
    """transformers' logits [tokens, vocab]; arguments as in `fp8_reference`."""
    with torch.no_grad():
        return fp8_reference(directory, layout, dtype, moving)(torch.tensor([list(ids)])).logits[0]


def fp8_references(
    directory: Path, layout: str, prompts: Iterable[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """`fp8_logits` of all prompts, one after another: in fp32, and in bf16 for the peer's."""
    every = [*prompts]
    reference, peer = (
        torch.cat([fp8_logits(directory, layout, one, dtype) for one in every])
        for dtype in (torch.float32, torch.bfloat16)
    )
    return reference, peer
