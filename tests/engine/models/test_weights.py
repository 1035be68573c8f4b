"""Weights: views alias the file, everything else is one counted copy, disagreements are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoints import make_checkpoint

from vcc.cache.errors import ModelError
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.checkpoint import tensors_in
from vcc.engine.models.expressions import (
    Binding,
    Cat,
    ChannelsLast,
    FromTensor,
    Rows,
    Stack,
    Tied,
    Transpose,
)
from vcc.engine.models.mapped_file import MappedFiles
from vcc.engine.models.source import open_source
from vcc.engine.models.weights import WeightLedger, load_weights

A, B = torch.arange(6.0).reshape(2, 3), torch.arange(6.0, 12.0).reshape(2, 3)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    save_file({"a": A, "b": B, "n": torch.tensor(7)}, tmp_path / "model.safetensors")
    return tmp_path


def load(
    place: Path, dtype: torch.dtype = torch.float32, **bindings: Binding
) -> tuple[dict[str, torch.Tensor], WeightLedger]:
    return load_weights(bindings, tensors_in(place), dtype)


def test_a_plain_tensor_is_a_view_of_the_mapped_file(two: Path) -> None:
    weights, ledger = load(two, w=FromTensor("a"))
    assert torch.equal(weights["w"], A)
    assert ledger == WeightLedger(bytes_viewed=24, bytes_copied=0)
    start, maps = weights["w"].data_ptr(), Path("/proc/self/maps").read_text().splitlines()
    ranges = [(line, *(int(x, 16) for x in line.split()[0].split("-"))) for line in maps]
    assert any("model.safetensors" in line and low <= start < high for line, low, high in ranges)


def test_a_write_to_a_view_stays_in_this_process(two: Path) -> None:
    weights, _ = load(two, w=FromTensor("a"))
    weights["w"].zero_()
    assert torch.equal(load_file(two / "model.safetensors")["a"], A)


@pytest.mark.parametrize(
    ("binding", "wanted"),
    [
        (Cat((FromTensor("a"), FromTensor("b"))), torch.cat((A, B))),
        (Stack((FromTensor("a"), FromTensor("b"))), torch.stack((A, B))),
        (Transpose(FromTensor("a")), A.t()),
        (Rows(FromTensor("a"), 1, 2), A[1:2]),
        (
            Cat((Rows(FromTensor("b"), 0, 1), Transpose(Transpose(FromTensor("a"))))),
            torch.cat((B[:1], A)),
        ),
        (Stack((Cat((FromTensor("a"), FromTensor("b"))),)), torch.cat((A, B))[None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_expression_is_one_copy_in_the_wanted_dtype(
    binding: Binding, wanted: torch.Tensor, dtype: torch.dtype, two: Path
) -> None:
    weights, ledger = load(two, dtype, w=binding)
    assert torch.equal(weights["w"], wanted.to(dtype))
    assert weights["w"].is_contiguous()
    assert ledger == WeightLedger(bytes_viewed=0, bytes_copied=weights["w"].nbytes)


def test_another_dtype_is_a_counted_copy_and_integers_keep_theirs(two: Path) -> None:
    weights, ledger = load(two, torch.bfloat16, w=FromTensor("a"), n=FromTensor("n"))
    assert weights["w"].dtype == torch.bfloat16
    assert weights["n"].dtype == torch.int64
    assert ledger == WeightLedger(bytes_viewed=8, bytes_copied=12)


def test_channels_are_moved_behind_the_sizes_of_a_filter(tmp_path: Path) -> None:
    filters = torch.arange(24.0).reshape(2, 3, 2, 2)
    save_file({"f": filters, "m": A}, tmp_path / "model.safetensors")
    found, ledger = load(tmp_path, torch.bfloat16, f=FromTensor("f"), t=ChannelsLast(Tied("f")))
    assert torch.equal(found["t"], filters.permute(0, 2, 3, 1).bfloat16())
    assert found["t"].is_contiguous()
    assert ledger.bytes_copied == 2 * 24 * 2
    with pytest.raises(ModelError, match="shapes do not go together") as told:
        load(tmp_path, m=ChannelsLast(FromTensor("m")))
    assert "[2, 3], which has no sizes behind its channels" in told.value.why
    assert told.value.hint


def test_tied_parameters_share_one_tensor_counted_once(two: Path) -> None:
    weights, ledger = load(two, head=Tied("embed"), embed=FromTensor("a"))
    assert weights["head"].data_ptr() == weights["embed"].data_ptr()
    assert ledger.bytes_viewed == 24


def test_a_misaligned_tensor_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"pad": torch.zeros(1, dtype=torch.uint8)}, file)
    header = {
        "pad": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [1, 25]},
    }
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" + A.numpy().tobytes())
    starts = tensors_in(tmp_path)["a"].start
    weights, ledger = load(tmp_path, w=FromTensor("a"))
    assert torch.equal(weights["w"], A)
    assert (ledger.bytes_copied == 24) is (starts % 4 != 0)


def test_a_file_that_shrank_after_its_header_was_read_is_an_error(two: Path) -> None:
    tensors = tensors_in(two)
    file = two / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ModelError, match="shorter"):
        load_weights(
            {"w": FromTensor("a"), "x": FromTensor("b"), "n": FromTensor("n")},
            tensors,
            torch.float32,
        )


def test_a_deleted_or_empty_file_is_an_error(two: Path) -> None:
    tensors = tensors_in(two)
    file = two / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(ModelError, match="cannot map"):
        MappedFiles().view(tensors["a"])
    file.unlink()
    with pytest.raises(ModelError, match="cannot read"):
        MappedFiles().view(tensors["a"])


def test_a_missing_tensor_is_named(two: Path) -> None:
    with pytest.raises(ModelError, match="no weights for z"):
        load(two, w=FromTensor("z"))


def test_a_model_opened_without_weights_has_no_data_to_load(tmp_path: Path) -> None:
    source = open_source(str(make_checkpoint(tmp_path, "llama")), weights="none")
    assert not source.has_weights
    with pytest.raises(ModelError, match="without weights"):
        load_weights(bindings_of(source.spec), source.tensors, torch.float32)


def test_the_ledger_of_a_model_counts_every_parameter_once(tmp_path: Path) -> None:
    source = open_source(str(make_checkpoint(tmp_path, "qwen2", tied=True)))
    _, ledger = load_weights(bindings_of(source.spec), source.tensors, torch.float32)
    stored = sum(info.end - info.start for info in source.tensors.values())
    assert ledger.bytes_viewed + ledger.bytes_copied == stored
    assert 0 < ledger.bytes_copied < stored


def test_a_stored_head_that_differs_from_the_tied_embedding_is_refused(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "llama", tied=True)
    tensors = load_file(directory / "model.safetensors")
    for change, agrees in ((0.0, True), (1.0, False)):
        head = tensors["model.embed_tokens.weight"] + change
        save_file({**tensors, "lm_head.weight": head}, directory / "model.safetensors")
        source = open_source(str(directory))
        if agrees:
            load_weights(bindings_of(source.spec), source.tensors, torch.float32)
            continue
        with pytest.raises(ModelError, match="tie_word_embeddings"):
            load_weights(bindings_of(source.spec), source.tensors, torch.float32)
