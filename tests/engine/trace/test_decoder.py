"""The decoder's step under fake tensors: no memory, T and B from 1, limits of one included."""

from __future__ import annotations

import pytest
import torch
from support.decoders import SHAPE, spec, traced_decoder

from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
from vcc.engine.ops.choice import OpChoice
from vcc.engine.partition.split import split
from vcc.engine.runtime.step import BLOCKS, SEQS, TOKENS, size_kind
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.decoder import LAYOUT, MOST_BLOCKS, StepShape, decoder_trace

RANGES = {TOKENS: (1, 256), SEQS: (1, 16), BLOCKS: (1, MOST_BLOCKS)}


def found_ranges(shape: StepShape) -> dict[str, tuple[int, int]]:
    """Range of each size of the step program, by what it counts."""
    pieces = split(traced_decoder(spec("llama", 2), shape=shape), DEFAULT_SPLITTING_OPS, ())
    return {size_kind(s): (s.low, s.high) for s in pieces.program.symbols}


def test_tokens_sequences_and_blocks_start_at_one() -> None:
    assert found_ranges(SHAPE) == RANGES


@pytest.mark.parametrize(
    ("shape", "fixed"),
    [
        (StepShape(256, 1, 8, 8), {SEQS}),
        (StepShape(1, 1, 8, 8), {SEQS, TOKENS}),
        (StepShape(256, 16, 8, 1), set()),
        (StepShape(256, 16, 1, 8), set()),
        (StepShape(256, 2, 8, 8), set()),
        (StepShape(2, 2, 1, 1), set()),
    ],
)
def test_a_limit_of_one_makes_a_constant_and_not_an_error(
    shape: StepShape, fixed: set[str]
) -> None:
    """`max_num_seqs: 1` is what a single user asks for."""
    ranges = found_ranges(shape)
    assert set(ranges) == {TOKENS, SEQS, BLOCKS} - fixed
    for kind, high in ((TOKENS, shape.max_tokens), (SEQS, shape.max_seqs)):
        # A range of [1, 2] is traced as [1, 3]; the step's limits say what is asked for.
        assert ranges.get(kind, (1, 1)) == (1, 3 if high == 2 else high)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_examples_are_fake_and_in_the_models_type(dtype: torch.dtype) -> None:
    request = decoder_trace(spec("qwen2", 2), dtype, OpChoice(), SHAPE)
    fake = type(fake_mode().from_tensor(torch.empty(1)))
    tensors = [*request.module.parameters(), *request.arguments["kv_caches"]]
    assert all(isinstance(tensor, fake) for tensor in tensors)
    assert {tensor.dtype for tensor in tensors} == {dtype}
    assert {request.arguments[name].dtype for name in LAYOUT} == {torch.int32}


def test_an_8b_decoder_is_traced_without_its_weights() -> None:
    """Fake weights: a layer of an 8B shape is traced in the memory of its code."""
    big = spec(
        "llama",
        1,
        hidden_size=4096,
        intermediate_size=14336,
        vocab_size=128256,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    graph = traced_decoder(big, dtype=torch.bfloat16)
    assert sum(p.role == "weight" for p in graph.placeholders) == 9
    assert list(graph.constants) == ["inv_freq"]
