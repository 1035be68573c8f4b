"""Attention of plain forwards is one launch a layer, and no scores are anywhere in the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import write_redrawn
from support.flow import ask
from torch import nn

from vcc.engine.compile.gpu import device_profile
from vcc.engine.events import NullEvents
from vcc.engine.graphs.expr import evaluate
from vcc.engine.graphs.planner.process import plan_in_child
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NodeKind, NodeTable, RegionKind
from vcc.engine.request import settle

LAYERS, HEADS = 2, 4


def vit() -> tuple[nn.Module, str]:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = ViTConfig(**sizes, intermediate_size=64, image_size=64, patch_size=4)
    return ViTForImageClassification(config), "pixel_values=4x3x64x64"


def bert() -> tuple[nn.Module, str]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = BertConfig(**sizes, intermediate_size=96, vocab_size=160)
    return BertModel(config), "input_ids=B@1-4xS@1-256"


def planned(model: nn.Module, shapes: list[str], folder: Path) -> NodeTable:
    write_redrawn(folder, model.eval())
    asked = settle(ask(folder, target="sm_90", dtype="bf16", inputs=shapes))
    content = plan_in_child(asked, device_profile(asked), NullEvents())
    return decode(content.steps[0].table)


def attending(table: NodeTable) -> list[int]:
    names = [one.function for one in table.kernels]
    return [
        index
        for index, one in enumerate(table.nodes)
        if one.kind is NodeKind.KERNEL and names[one.target].startswith("fused_attention")
    ]


@pytest.mark.parametrize("make", [vit, pytest.param(bert, marks=pytest.mark.slow)])
def test_a_layer_has_one_launch_and_no_scores(make: Any, tmp_path: Path) -> None:
    model, shape = make()
    shapes = [shape]
    if make is bert:
        sizes = shape.split("=")[1]
        shapes += [f"attention_mask={sizes}"]
    table = planned(model, shapes, tmp_path / "model")
    assert len(attending(table)) == LAYERS
    most = {symbol.name: symbol.high for symbol in table.symbols}
    rows = 257 if make is vit else 256
    kind = RegionKind.WORKSPACE
    (space,) = (evaluate(one.size, most) for one in table.regions if one.kind is kind)
    assert space < 4 * HEADS * rows * rows * 2, "less than the scores of one layer in bf16"
