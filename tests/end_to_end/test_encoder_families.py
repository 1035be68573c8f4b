"""Encoders and vision models of `transformers` in a directory: those that are run much, by family.

Each is small and has every parameter redrawn; what is compiled gives what `transformers` gives, at
several sizes of one artifact, with rows that are padded. docs/transformers.md lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import write_redrawn
from support.flow import ask, built
from support.numbers import assert_fp32_close, assert_states_close
from torch import Tensor

from vcc.cache.store import Store
from vcc.engine.request import settle
from vcc.engine.session import Session, open_module_session

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

DOCS = Path(__file__).parents[2] / "docs"
EAGER = json.dumps({"backend": "eager"})
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
TEXT = SIZES | {"vocab_size": 160, "max_position_embeddings": 64}
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
OWN = {"cls_token_id": 1, "sep_token_id": 2}
IMAGE = SIZES | {"image_size": 32, "patch_size": 8}
DISTIL: dict[str, Any] = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 96,
    "max_position_embeddings": 64,
}
SHIFTED: dict[str, Any] = {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
STAGES: dict[str, Any] = {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]}

TEXTS: Mapping[str, dict[str, Any]] = {
    "BertModel": TEXT,
    "BertForMaskedLM": TEXT,
    "BertForTokenClassification": TEXT | {"num_labels": 5},
    "BertForQuestionAnswering": TEXT,
    "RobertaModel": TEXT,
    "RobertaForSequenceClassification": TEXT | {"num_labels": 5},
    "XLMRobertaModel": TEXT,
    "CamembertModel": TEXT,
    "DistilBertModel": DISTIL | {"vocab_size": 160},
    "DistilBertForSequenceClassification": DISTIL | {"vocab_size": 160},
    "AlbertModel": TEXT | {"embedding_size": 32},
    "ElectraModel": TEXT | {"embedding_size": 32},
    "MPNetModel": TEXT,
    "DebertaV2Model": TEXT
    | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    "ModernBertModel": TEXT | SPECIAL | OWN | {"local_attention": 16},
    "ModernBertForSequenceClassification": TEXT | SPECIAL | OWN | {"local_attention": 16},
    "NomicBertModel": TEXT,
    "EuroBertModel": TEXT | SPECIAL | {"mask_token_id": 3},
    "T5EncoderModel": {"d_model": 64, "d_kv": 16, "num_heads": 4, "num_layers": 2, "d_ff": 96}
    | {"vocab_size": 160},
    "Qwen3ForSequenceClassification": TEXT
    | SPECIAL
    | {"num_key_value_heads": 2, "head_dim": 16, "num_labels": 3},
    "CLIPTextModel": TEXT,
    "CLIPTextModelWithProjection": TEXT | {"projection_dim": 32},
    "SiglipTextModel": TEXT,
    "BertForPreTraining": TEXT,
    "BertForNextSentencePrediction": TEXT,
    "ElectraForPreTraining": TEXT | {"embedding_size": 32},
}
IMAGES: Mapping[str, dict[str, Any]] = {
    "ViTModel": IMAGE,
    "ViTMSNModel": IMAGE,
    "DeiTModel": IMAGE,
    "DeiTForImageClassification": IMAGE | {"num_labels": 7},
    "BeitModel": IMAGE | {"use_relative_position_bias": True},
    "Data2VecVisionModel": IMAGE,
    "CLIPVisionModel": IMAGE,
    "CLIPVisionModelWithProjection": IMAGE | {"projection_dim": 32},
    "SiglipVisionModel": IMAGE,
    "Dinov2Model": IMAGE,
    "Dinov2WithRegistersModel": IMAGE,
    "DINOv3ViTModel": IMAGE,
    "YolosModel": IMAGE | {"image_size": [32, 32]},
    "YolosForObjectDetection": IMAGE | {"image_size": [32, 32], "num_detection_tokens": 6},
    "SwinModel": SHIFTED | {"image_size": 32},
    "Swinv2Model": SHIFTED | {"image_size": 32},
    "HieraModel": {"image_size": [32, 32], "embed_dim": 16, "depths": [1, 1, 1, 1]}
    | {"num_heads": [1, 1, 2, 2]},
    "SegformerModel": STAGES | {"num_attention_heads": [1, 2, 4, 4]},
    "PoolFormerModel": STAGES,
    "ConvNextModel": STAGES | {"image_size": 32},
    "ConvNextV2Model": STAGES | {"image_size": 32},
    "ResNetModel": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "RegNetModel": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}
    | {"groups_width": 8},
    "MobileNetV1Model": {"image_size": 32, "depth_multiplier": 0.25},
    "MobileNetV2Model": {"image_size": 32, "depth_multiplier": 0.35},
    "MobileViTModel": {"image_size": 64, "hidden_sizes": [16, 24, 32]}
    | {"neck_hidden_sizes": [8, 16, 16, 24, 32, 32, 64]},
}
WAVE: dict[str, Any] = SIZES | {"conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2]}
WAVE |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
OTHERS: Mapping[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "Wav2Vec2ForCTC": ("input_values", (800,), WAVE | {"vocab_size": 40}),
    "ASTForAudioClassification": (
        *("input_values", (64, 32)),
        SIZES | {"max_length": 64, "num_mel_bins": 32, "num_labels": 6},
    ),
    "VideoMAEForVideoClassification": (
        *("pixel_values", (4, 3, 32, 32)),
        IMAGE | {"num_frames": 4, "num_labels": 5},
    ),
}
"""Sounds and videos: the name of the input, its sizes behind the first, and the model's fields."""
LOGITS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Answering")
ALL = (*TEXTS, *IMAGES, *OTHERS)
FAST = ("NomicBertModel", "CLIPTextModelWithProjection", "CLIPVisionModelWithProjection")


@dataclass(frozen=True)
class Family:
    """A model in a directory, `transformers`' own of it, and what both are given."""

    home: Path
    model: Any
    batches: Sequence[Mapping[str, Tensor]]
    shapes: Sequence[str]


def texts() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for rows, length in ((1, 1), (2, 9), (4, 32)):
        ids = torch.randint(4, 160, (rows, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[-1, max(1, length // 2) :] = 0
        found.append({"input_ids": ids, "attention_mask": mask})
    return found


def numbers(name: str, sizes: Sequence[int]) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [{name: torch.randn(n, *sizes, generator=generator)} for n in (1, 3)]


def _given(name: str) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    """Of a model that reads numbers: its input, that input's sizes but the first, its fields."""
    if name in OTHERS:
        return OTHERS[name]
    size = IMAGES[name].get("image_size", 64)
    side = size[0] if isinstance(size, list) else size
    return "pixel_values", (3, side, side), IMAGES[name]


def made(name: str, home: Path) -> Family:
    """A family, its checkpoint written to a folder; filters are scaled by what they sum."""
    fields = TEXTS[name] if name in TEXTS else _given(name)[2]
    kind = getattr(transformers, name)
    model = write_redrawn(home, kind(kind.config_class(**fields)).eval())
    model = kind.from_pretrained(home, dtype=torch.float32)
    for one in (one for one in model.parameters() if one.dim() == 4):
        one.data.div_((one[0].numel() / one.shape[-1]) ** 0.5)
    model.save_pretrained(home)
    # Eager attention is compiled: a row that sees nothing is a mean there, and zero in sdpa.
    model = kind.from_pretrained(home, dtype=torch.float32, attn_implementation="eager").eval()
    if name in TEXTS:
        shapes = [f"{one}=B@1-4xS@1-32" for one in ("input_ids", "attention_mask")]
        return Family(home, model, texts(), shapes)
    given, sizes, _ = _given(name)
    shape = "x".join(str(one) for one in ("N@1-4", *sizes))
    return Family(home, model, numbers(given, sizes), [f"{given}={shape}"])


def forward(family: Family, shelf: Path) -> Any:
    asked = ask(family.home, dtype="fp32", inputs=list(family.shapes), config=EAGER)
    store = Store.open(shelf)
    built(asked, store)
    return open_module_session(Session(settle(asked), store, "all", require_warm=True)).booted


def hold(name: str, home: Path, shelf: Path) -> None:
    family = made(name, home)
    run = forward(family, shelf).forward
    check = assert_fp32_close if name.endswith(LOGITS) else assert_states_close
    for batch in family.batches:
        found = run(batch)
        with torch.no_grad():
            given = family.model(**batch)
        wanted = [one for one in given.values() if isinstance(one, Tensor)]
        assert len(found) == len(wanted)
        for one, other in zip(found.values(), wanted, strict=True):
            check(one, other)


@pytest.mark.parametrize("name", FAST)
def test_a_family_is_that_of_transformers(name: str, shelf: Path, tmp_path: Path) -> None:
    hold(name, tmp_path / "model", shelf)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in ALL if one not in FAST])
def test_every_family_is_that_of_transformers(name: str, shelf: Path, tmp_path: Path) -> None:
    hold(name, tmp_path / "model", shelf)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_classifier_of_decoders_reads_the_last_token_that_is_no_padding(
    rows: int, shelf: Path, tmp_path: Path
) -> None:
    """With one row, a model without a padding token would read the last of all."""
    family = made("Qwen3ForSequenceClassification", tmp_path / "model")
    ids = torch.randint(4, 160, (rows, 6), generator=torch.Generator().manual_seed(1))
    ids[:, 4:] = 0
    shapes = [f"input_ids={rows}x6"]
    run = forward(Family(family.home, family.model, (), shapes), shelf).forward
    with torch.no_grad():
        wanted, last = (family.model(one).logits for one in (ids, ids.where(ids > 0, 7)))
    assert_fp32_close(run({"input_ids": ids})["output_0"], wanted)
    assert float((wanted - last).abs().max()) > 0.01


def test_the_page_names_the_families() -> None:
    page = (DOCS / "transformers.md").read_text()
    assert [name for name in ALL if f"`{name}`" not in page] == []
