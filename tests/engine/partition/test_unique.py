"""How many pieces a decoder has: two and the seams, at any depth."""

from __future__ import annotations

import pytest
import torch
from support.checkpoints import ARCHITECTURES
from support.decoders import SHAPE, decoder_pieces, spec, traced_decoder

from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
from vcc.engine.partition.split import split
from vcc.engine.types import Pieces


def counts(pieces: Pieces) -> list[int]:
    return sorted(pieces.calls.values())


SEAMS = {"smollm3": (2, 1), "qwen2_moe": (2, 1)}
"""Calls of each seam between four layers, where layers differ in more than their attention."""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_decoder_has_two_pieces_and_one_for_each_seam(arch: str) -> None:
    """First layer's head, the seams between two layers, and the tail. Windows are arguments of
    attention, and a rope's angles are inputs, so Gemma's alternation makes no second seam; layers
    without rope (SmolLM3) and without experts (Qwen2-MoE) do."""
    pieces = decoder_pieces(arch, 4)
    assert counts(pieces) == sorted((1, 1, *SEAMS.get(arch, (3,))))
    assert len(pieces.program.calls) == 4 * 2 + 5


@pytest.mark.parametrize(("arch", "layers"), [("llama", 32), ("gemma3_text", 16)])
def test_depth_adds_calls_and_no_pieces(arch: str, layers: int) -> None:
    deep = decoder_pieces(arch, layers)
    assert counts(deep) == [1, 1, layers - 1]
    assert {p.id for p in deep.unique} == {p.id for p in decoder_pieces(arch, 3).unique}


def test_weights_of_equal_layers_are_inputs_and_differ() -> None:
    pieces = decoder_pieces("llama", 3)
    weights = [v.target for v in pieces.program.of_role("weight")]
    assert len(weights) == len(set(weights))
    assert {"layers.0.attn.qkv.weight", "layers.2.attn.qkv.weight"} <= set(weights)
    assert [v.target for v in pieces.program.of_role("constant")] == ["inv_freq"]


def test_pieces_depend_on_dtype_ops_and_limits() -> None:
    """What changes code changes the id; nothing else is needed to tell pieces apart."""
    one = spec("llama", 2)
    smaller = type(SHAPE)(128, SHAPE.max_seqs, SHAPE.block_size, SHAPE.max_blocks_per_seq)
    variants = [
        traced_decoder(one),
        traced_decoder(one, dtype=torch.bfloat16),
        traced_decoder(one, ops=frozenset({"rms_norm"})),
        traced_decoder(one, shape=smaller),
    ]
    found = [{p.id for p in split(t, DEFAULT_SPLITTING_OPS, ()).unique} for t in variants]
    for index, ids in enumerate(found):
        assert not ids & set().union(*found[index + 1 :], set())


def test_without_cuts_there_is_one_piece() -> None:
    pieces = split(traced_decoder(spec("llama", 2)), (), ())
    assert counts(pieces) == [1]
    assert [call.kind for call in pieces.program.calls] == ["piece"]
