"""Plain forwards for a GPU, checked without one: their node tables by Triton's interpreter.

The short form is a factory's module with a convolution, attention by torch's own function and two
sizes that vary; the long forms are an encoder and vision models of `transformers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import write_redrawn
from support.interpreted_forward import computed
from support.numbers import assert_fp32_close, assert_low_precision, assert_states_close
from support.zoos import open_zoo
from torch import Tensor

FACTORY = '''"""A convolution in groups, attention by torch's own function, and a buffer."""

import torch
from torch.nn import functional as F


class Mixer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(16, 16, 3, padding=1, groups=2)
        self.out = torch.nn.Linear(16, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 16), persistent=False)

    def forward(self, x):
        x = self.conv(x.transpose(1, 2)).transpose(1, 2) * self.scale
        q = x.unflatten(-1, (2, 8)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2)), x.mean(1)


def make():
    torch.manual_seed(0)
    return Mixer().eval()
'''


def test_a_factory_computes_what_its_module_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_zoo(tmp_path, monkeypatch, "mixing_zoo", FACTORY)
    from mixing_zoo import make

    module = make()
    generator = torch.Generator().manual_seed(0)
    batches = [{"x": torch.randn(b, s, 16, generator=generator)} for b, s in ((1, 2), (3, 9))]
    (tmp_path / "job").mkdir()
    shape = "x=B@1-4xS@2-12x16"
    weights = module.state_dict()
    found = computed(tmp_path / "job", "mixing_zoo:make", weights, batches, inputs=[shape])
    check(found, batches, module)


def check(found: Sequence[Sequence[Tensor]], batches: Sequence[Any], module: Any) -> None:
    for mine, batch in zip(found, batches, strict=True):
        with torch.no_grad():
            wanted = module(**batch)
        named = wanted.items() if isinstance(wanted, Mapping) else enumerate(wanted)
        tensors = [(name, one) for name, one in named if isinstance(one, Tensor)]
        for one, (name, other) in zip(mine, tensors, strict=True):
            assert one.shape == other.shape
            (assert_fp32_close if name == "logits" else assert_states_close)(one, other)


def bert() -> tuple[Any, list[dict[str, Tensor]], list[str]]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=96, vocab_size=160, max_position_embeddings=64)
    batches = []
    for rows, length in ((1, 1), (2, 9)):
        ids = torch.randint(4, 160, (rows, length), generator=torch.Generator().manual_seed(0))
        mask = torch.ones_like(ids)
        mask[-1, max(1, length // 2) :] = 0
        batches.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2})
    return BertModel(config), batches, []


def images(size: int, *counts: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [{"pixel_values": torch.randn(n, 3, size, size, generator=generator)} for n in counts]


def vit() -> tuple[Any, list[dict[str, Tensor]], list[str]]:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = ViTConfig(**sizes, intermediate_size=64, image_size=32, patch_size=8, num_labels=7)
    return ViTForImageClassification(config), images(32, 1, 3), []


def resnet() -> tuple[Any, list[dict[str, Tensor]], list[str]]:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64], depths=[1, 2], num_labels=5, layer_type="basic"
    )
    shapes = ["pixel_values=N@1-2x3x32x32"]
    return ResNetForImageClassification(config), images(32, 1, 2), shapes


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert, vit, resnet])
def test_a_model_in_a_directory_is_that_of_transformers(make: Any, tmp_path: Path) -> None:
    model, batches, shapes = make()
    write_redrawn(tmp_path / "model", model.eval())
    (tmp_path / "job").mkdir()
    weights = {f"model.{name}": one for name, one in model.state_dict().items()}
    options = {"inputs": shapes} if shapes else {}
    found = computed(tmp_path / "job", tmp_path / "model", weights, batches, **options)
    check(found, batches, model)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "rows", "batches"), [(vit, 8, 16), (resnet, 2, 32)])
def test_a_model_in_bf16_keeps_the_numbers_rule(
    make: Any, rows: int, batches: int, tmp_path: Path
) -> None:
    """Rounded where a device rounds: what a build in fp32 does not show."""
    model, _, shapes = make()
    write_redrawn(tmp_path / "model", model.eval(), "bfloat16")
    exact, peer = (
        type(model).from_pretrained(tmp_path / "model", dtype=dtype).eval()
        for dtype in (torch.float32, torch.bfloat16)
    )
    shown = [
        {name: one.bfloat16() for name, one in batch.items()}
        for batch in images(32, *[rows] * batches)
    ]
    weights = {f"model.{name}": one for name, one in peer.state_dict().items()}
    (tmp_path / "job").mkdir()
    options = {"dtype": "bf16"} | ({"inputs": shapes} if shapes else {})
    found = computed(tmp_path / "job", tmp_path / "model", weights, shown, **options)
    mine = torch.cat([one.float() for (one,) in found])
    with torch.no_grad():
        wanted = torch.cat([exact(one["pixel_values"].float()).logits for one in shown])
        near = torch.cat([peer(**one).logits.float() for one in shown])
    assert_low_precision(mine, wanted, near)


IMAGES = '''"""Convolutions that read pixels, windows and groups, and what lies between them."""

import torch
from torch.nn import functional as F


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 32, 5, stride=2, padding=2)
        self.points = torch.nn.Conv2d(32, 64, 1, stride=2, bias=False)
        self.apart = torch.nn.Conv2d(32, 64, 3, stride=2, padding=2, dilation=2)
        self.norm = torch.nn.BatchNorm2d(64)
        self.groups = torch.nn.Conv2d(64, 32, 3, padding=1, groups=2)
        self.last = torch.nn.Conv2d(32, 33, (3, 2), padding=(0, 1))
        self.out = torch.nn.Linear(33 * 12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 3, padding=1, stride=1)
        y = F.gelu(self.norm(self.points(x) + self.apart(x)))
        y = self.last(self.groups(y))
        return self.out(y.flatten(1)), y, x.mean((2, 3))


def make():
    torch.manual_seed(0)
    made = Images().eval()
    made.norm.running_var.uniform_(0.5, 1.5)
    return made
'''


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["x=N@1-3x3x20x12", "x=3x3x20x12"])
def test_convolutions_leave_their_images_as_their_readers_want_them(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a view that cannot be one any more, and results that callers get row-major."""
    open_zoo(tmp_path, monkeypatch, "images_zoo", IMAGES)
    from images_zoo import make

    module = make()
    generator = torch.Generator().manual_seed(0)
    counts = (3,) if shape.startswith("x=3") else (1, 3)
    batches = [{"x": torch.randn(n, 3, 20, 12, generator=generator)} for n in counts]
    (tmp_path / "job").mkdir()
    found = computed(
        tmp_path / "job", "images_zoo:make", module.state_dict(), batches, inputs=[shape]
    )
    check(found, batches, module)


SCORING = '''"""Attention in two spellings; a step of fp16 is a quarter where its scores are."""

import torch
from torch.nn import functional as F


class Scoring(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        x = x * self.gain
        q = x + 4
        scores = torch.matmul(q, q.transpose(1, 2)) * 0.25
        shares = F.softmax(scores, -1, dtype=torch.float32).to(x.dtype)
        return F.scaled_dot_product_attention(q, q, x), torch.matmul(shares, x)


def make():
    return Scoring().eval()
'''


def test_scores_are_not_rounded_before_a_softmax_in_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_zoo(tmp_path, monkeypatch, "scoring_zoo", SCORING)
    x = torch.randn(4, 17, 16).half()
    weights, options = {"gain": torch.ones(16).half()}, {"inputs": ["x=4x17x16"], "dtype": "fp16"}
    (found,) = computed(tmp_path, "scoring_zoo:make", weights, [{"x": x}], **options)
    exact, rounded = (_attended(x, rounds) for rounds in (False, True))
    for one in found:
        assert (one - exact).square().mean() < (rounded - exact).square().mean() / 16


def _attended(x: Tensor, rounds: bool) -> Tensor:
    """The module in fp32, with or without scores that are rounded to fp16."""
    q = (x + 4).float()
    scores = q @ q.transpose(1, 2)
    scores = scores.half().float() if rounds else scores
    return (scores * 0.25).softmax(-1) @ x.float()
