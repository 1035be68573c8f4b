"""Experts' weights: a tensor each or stacked tensors give the same parameters, without a detour."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoints import make_checkpoint

from vcc.cache.errors import IntegrityError, ModelError
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.expression_text import parse
from vcc.engine.models.expressions import Each, FromTensor, Stack
from vcc.engine.models.source import Source, open_source
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.models.weights import WeightLedger, load_weights
from vcc.engine.runtime.player.copies import Evaluator

FAMILIES = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2", 6)}
FAMILIES["qwen3_moe"] = ("mlp", "gate_proj", "up_proj", "down_proj", 12)
FAMILIES["qwen2_moe"] = ("mlp", "gate_proj", "up_proj", "down_proj", 7)


def loaded(source: Source) -> tuple[dict[str, torch.Tensor], WeightLedger]:
    bindings = bindings_of(source.spec, source.tensors)
    return load_weights(bindings, source.tensors, torch.float32)


def stack_experts(place: Path, arch: str) -> None:
    """Rewrite a checkpoint as transformers holds it in memory."""
    block, gate, up, down, count = FAMILIES[arch]
    tensors = load_file(place / "model.safetensors")
    for layer in range(3):
        home = f"model.layers.{layer}.{block}"
        if f"{home}.experts.0.{gate}.weight" not in tensors:
            continue
        found = [
            [tensors.pop(f"{home}.experts.{i}.{name}.weight") for name in (gate, up, down)]
            for i in range(count)
        ]
        to = f"model.layers.{layer}.mlp"
        tensors[f"{to}.gate.weight"] = tensors.pop(f"{home}.gate.weight")
        tensors[f"{to}.experts.gate_up_proj"] = torch.stack([torch.cat(f[:2]) for f in found])
        tensors[f"{to}.experts.down_proj"] = torch.stack([f[2] for f in found])
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("arch", FAMILIES)
def test_both_layouts_give_the_same_parameters(arch: str, tmp_path: Path) -> None:
    make_checkpoint(tmp_path, arch)
    each = open_source(str(tmp_path))
    wanted, copied = loaded(each)
    stack_experts(tmp_path, arch)
    stacked = open_source(str(tmp_path))
    found, viewed = loaded(stacked)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    experts = sum(t.nbytes for name, t in found.items() if ".experts." in name)
    assert copied.bytes_copied - viewed.bytes_copied == experts
    assert stacked.model_key() != each.model_key()


def test_experts_of_another_shape_are_named(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "mixtral")
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    tensors[name] = tensors[name][:, 1:].contiguous()
    del tensors["model.layers.2.block_sparse_moe.experts.5.w1.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="disagree") as caught:
        open_source(str(tmp_path))
    assert f"{name} is [64, 95], the config says [64, 96]" in caught.value.why
    assert "experts.5.w1.weight is missing" in caught.value.why


def test_a_layer_of_experts_takes_one_line_of_the_manifest(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "qwen3_moe")
    text = str(bindings_of(open_source(str(tmp_path)).spec)["layers.0.mlp.experts.gate_up"])
    layer = "model.layers.0.mlp.experts.*"
    assert text == (
        f'stack(cat(tensor("{layer}.gate_proj.weight"), tensor("{layer}.up_proj.weight")), 0:12)'
    )
    assert str(parse(text)) == text


def test_numbers_in_names_mean_the_same_as_each_name() -> None:
    short = parse('stack(tensor("a.*.b"), 2:4)')
    assert isinstance(short, Each)
    assert Stack(short.parts) == Stack((FromTensor("a.2.b"), FromTensor("a.3.b")))
    info = {f"a.{i}.b": TensorInfo("float32", (3, 4)) for i in range(5)}
    values = [Evaluator({}, info).value(one) for one in (short, Stack(short.parts))]
    assert values[0] == values[1]
    assert values[0].shape == (2, 3, 4)


@pytest.mark.parametrize(
    "text",
    [
        'stack(tensor("a.*"), 0:5000)',
        'stack(tensor("a.*"), 3:3)',
        'stack(tensor("a"), 0:2)',
        'stack(stack(tensor("a.*"), 0:4096), 0:4096)',
        'cat(stack(tensor("a.*"), 0:9), stack(tensor("b.*"), 0:9))',
        'stack(tensor("a.*"), 0:2, 0:2)',
        'stack(tensor("a.*"), 0)',
    ],
)
def test_ranges_that_are_refused(text: str) -> None:
    with pytest.raises(IntegrityError):
        parse(text)
