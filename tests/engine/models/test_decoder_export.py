"""The decoder exports with T and B from 1 on, and nothing narrows their ranges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from torch._subclasses import FakeTensorMode
from torch.export import Dim, export
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vcc.engine.models.architectures import spec_of
from vcc.engine.models.decoder import Decoder
from vcc.engine.ops.register import load_ops

MOST_TOKENS, MOST_SEQUENCES = 512, 64


def exported(arch: str) -> Any:
    load_ops()
    fields = {"architectures": [ARCHITECTURES[arch]], **SIZES, **OWN_SIZES[arch]}
    spec = spec_of({**fields, "num_hidden_layers": 2, "max_window_layers": 1})
    with FakeTensorMode(shape_env=ShapeEnv()):
        decoder = Decoder(spec, torch.bfloat16)
        tokens, sequences = 6, 4

        def ints(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=torch.int32)

        arguments = (
            *(ints(tokens) for _ in range(3)),
            ints(sequences, 8),
            ints(sequences),
            ints(sequences + 1),
            ints(sequences),
            [torch.empty(spec.kv_shape(16, 8), dtype=torch.bfloat16) for _ in range(spec.layers)],
        )
        t, b = Dim("t", min=1, max=MOST_TOKENS), Dim("b", min=1, max=MOST_SEQUENCES)
        shapes = (*({0: t},) * 3, {0: b}, {0: b}, {0: b + 1}, {0: b}, [None] * spec.layers)
        return export(decoder, arguments, dynamic_shapes=shapes, strict=False)


@pytest.mark.parametrize("arch", ["llama", "qwen3", "gemma2"])
def test_ranges_found_equal_ranges_declared(arch: str) -> None:
    program = exported(arch)
    ranges = {(int(r.lower), int(r.upper)) for r in program.range_constraints.values()}
    assert (1, MOST_TOKENS) in ranges
    assert (1, MOST_SEQUENCES) in ranges
    assert len(ranges) <= 3


def test_between_kv_write_and_attention_lies_nothing() -> None:
    nodes = [n for n in exported("gemma2").graph_module.graph.nodes if n.op == "call_function"]
    names = [str(node.target) for node in nodes]
    writes = [i for i, name in enumerate(names) if "kv_write" in name]
    assert len(writes) == 2
    assert all("paged_attention" in names[i + 1] for i in writes)
