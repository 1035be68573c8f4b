"""load_forward: a directory or a factory as a function of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import write_redrawn
from support.zoos import open_zoo

import vcc
from vcc.cache.errors import MissingArtifact, UsageError

EAGER = {"backend": "eager"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=64, vocab_size=160, max_position_embeddings=64)
    return write_redrawn(tmp_path_factory.mktemp("bert"), BertModel(config))


def test_an_encoder_is_built_once_and_boots_warm_by_its_default_inputs(
    encoder: Path, tmp_path: Path
) -> None:
    from transformers import BertModel

    vcc.load_forward(str(encoder), cache_dir=tmp_path, compilation=EAGER)
    warm = vcc.load_forward(
        str(encoder), cache_dir=tmp_path, compilation=EAGER, require_warm=True, golden="all"
    )
    assert warm.counters.as_dict()["compiles"] == 0
    assert [str(one) for one in warm.source.shapes] == [
        f"{name}=B@1-8xS@1-64:int64" for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    ids = torch.randint(4, 160, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    model = BertModel.from_pretrained(encoder, attn_implementation="eager").eval()
    with torch.no_grad():
        wanted = model(**inputs)
    found = warm(inputs)
    assert (found["output_0"] - wanted.last_hidden_state).abs().max() < 1e-5
    assert (found["output_1"] - wanted.pooler_output).abs().max() < 1e-5


@pytest.mark.parametrize("way", [{"compilation": EAGER}, {"compilation": {"mode": "none"}}])
def test_outputs_are_kept_by_later_calls_unless_copies_are_declined(
    way: dict[str, Any], encoder: Path, tmp_path: Path
) -> None:
    shapes = ["input_ids=B@1-4x6:int64"]
    first, second = (torch.full((rows, 6), 5 + rows) for rows in (1, 3))
    given = {"shapes": shapes, "cache_dir": tmp_path, **way}
    forward = vcc.load_forward(str(encoder), **given)
    found = forward({"input_ids": first})
    kept = {name: one.clone() for name, one in found.items()}
    later = forward({"input_ids": second})
    assert all(torch.equal(found[name], one) for name, one in kept.items())
    views = vcc.load_forward(str(encoder), **given, copy=False)
    assert all(torch.equal(views({"input_ids": second})[n], one) for n, one in later.items())
    if way["compilation"] is EAGER:  # one memory for all calls
        once, again = (views({"input_ids": first})["output_0"] for _ in range(2))
        assert once.data_ptr() == again.data_ptr()


def test_inputs_of_other_kinds_are_refused_with_a_hint(encoder: Path, tmp_path: Path) -> None:
    given = {"cache_dir": tmp_path, "compilation": EAGER}
    forward = vcc.load_forward(str(encoder), shapes=["input_ids=1x4"], **given)
    wrong: list[tuple[Any, str, str]] = [
        ({0: torch.ones(1, 4)}, "by name, not by int", 'give a dict: {"input_ids": ...}'),
        ([torch.ones(1, 4)], "by name, not by list", 'give a dict: {"input_ids": ...}'),
        ({"input_ids": [[5, 6, 7, 8]]}, "is no tensor", "give torch.as_tensor(x)"),
        ({"input_ids": torch.ones(1, 4)}, "is torch.float32", 'give x.to("cpu", torch.int64)'),
    ]
    for inputs, what, hint in wrong:
        with pytest.raises(UsageError, match=what) as caught:
            forward(inputs)
        assert caught.value.hint == hint


def test_declared_inputs_are_used_and_make_another_request(encoder: Path, tmp_path: Path) -> None:
    shapes = ["input_ids=2x7:int64"]
    given = {"cache_dir": tmp_path, "compilation": EAGER}
    one = vcc.load_forward(str(encoder), shapes=shapes, **given)
    assert sorted(one({"input_ids": torch.full((2, 7), 5)})) == ["output_0", "output_1"]
    with pytest.raises(MissingArtifact):
        vcc.load_forward(str(encoder), require_warm=True, **given)


def test_an_input_that_the_model_does_not_have_is_named(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(vcc.VccError, match="BertModel has no input pixels") as caught:
        vcc.load_forward(str(encoder), shapes=["pixels=1x3"], cache_dir=tmp_path)
    assert "input_ids" in caught.value.why


def test_a_decoder_is_told_how_it_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="demo is a decoder") as caught:
        vcc.load_forward("demo", cache_dir=tmp_path)
    assert caught.value.hint == 'vcc.load("demo")'


COUNTED = '''"""A module that counts its calls."""

import torch


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * 2 + self.calls
'''


def test_a_buffer_without_a_dimension_is_written_once_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a loop that threads share, and which each of them would do for itself."""
    open_zoo(tmp_path, monkeypatch, "counted_zoo", COUNTED)
    given = {"cache_dir": tmp_path / "store", "target": "cpu"}
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        forward = vcc.load_forward("counted_zoo:Counted", shapes=["x=64x512"], **given)
        x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
        for calls in (1, 2, 3):
            assert torch.equal(forward({"x": x})["output_0"], x * 2 + calls)
    finally:
        torch.set_num_threads(before)
