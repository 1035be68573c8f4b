"""Bad arguments: each message names the operator and the argument, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.paged import Heads, paged_batch

I32 = torch.int32


@dataclass(frozen=True, slots=True)
class Bad:
    """Change some arguments of a good call and expect this in the message."""

    op: str
    change: Callable[[list[Any]], None]
    message: str


def _good(op: str) -> list[Any]:
    x = torch.randn(4, 32)
    batch = paged_batch(Heads(2, 1, 16), [(20, 3), (9, 1)])
    attention = [batch.q, batch.kv_cache, batch.block_table, batch.seq_lens, batch.query_start]
    return {
        "rms_norm": [x, torch.ones(32), 1e-6],
        "fused_add_rms_norm": [x, x.clone(), torch.ones(32), 1e-6],
        "silu_and_mul": [x],
        "rotary_embedding": [x, x.clone(), torch.ones(4, 8), torch.ones(4, 8), 16],
        "kv_write": [x, x.clone(), torch.zeros(2, 2, 4, 2, 16), torch.arange(4, dtype=I32)],
        "topk_softmax": [x, 3, True],
        "moe_experts": [
            x,
            torch.randn(5, 12, 32),
            torch.randn(5, 32, 6),
            torch.rand(4, 2),
            torch.zeros(4, 2, dtype=I32),
        ],
        "lora_shrink": [x, torch.randn(3, 8, 32), torch.zeros(4, dtype=I32)],
        "lora_expand": [
            x,
            torch.randn(4, 8),
            torch.randn(3, 32, 4),
            torch.zeros(4, dtype=I32),
            [16, 16],
        ],
        "paged_attention": [*attention, torch.empty(4, 32), 0.25, 0, 0.0],
    }[op]


def _set(index: int, value: Any) -> Callable[[list[Any]], None]:
    def change(arguments: list[Any]) -> None:
        arguments[index] = value

    return change


def _put(index: int, where: Any, value: int) -> Callable[[list[Any]], None]:
    def change(arguments: list[Any]) -> None:
        arguments[index][where] = value

    return change


BAD = (
    Bad("topk_softmax", _set(1, 33), "top_k must be from 1 to the 32 columns of logits"),
    Bad("topk_softmax", _set(1, 0), "top_k must be from 1"),
    Bad("topk_softmax", _set(0, torch.ones(32)), "logits must have 2 dimensions"),
    Bad("lora_shrink", _set(1, torch.ones(3, 8, 16)), "a must have size 32 in dimension 2"),
    Bad("lora_shrink", _set(1, torch.ones(3, 8, 32).bfloat16()), "a must have the dtype of x"),
    Bad("lora_shrink", _set(1, torch.ones(3, 32, 8).mT), "a must be contiguous in its last"),
    Bad("lora_shrink", _set(2, torch.zeros(3, dtype=I32)), "slots must have size 4 in dimension 0"),
    Bad("lora_shrink", _set(2, torch.zeros(4).long()), "slots must be Int"),
    Bad("lora_expand", _set(1, torch.ones(4, 8).bfloat16()), "low must be Float"),
    Bad("lora_expand", _set(1, torch.ones(4, 4)), "low must have size 8 in dimension 1"),
    Bad("lora_expand", _set(2, torch.ones(3, 16, 4)), "widths must add up to the 16 rows of b"),
    Bad("lora_expand", _set(4, [40, -8]), "widths must not be negative, one is -8"),
    Bad("moe_experts", _put(4, (2, 1), 5), r"ids\[2, 1\] is 5, outside the 5 experts"),
    Bad("moe_experts", _put(4, (0, 0), -1), r"ids\[0, 0\] is -1, outside the 5 experts"),
    Bad("moe_experts", _set(1, torch.ones(5, 11, 32)), "gate_up must have size 12 in dimension 1"),
    Bad("moe_experts", _set(1, torch.ones(5, 32, 12).mT), "gate_up must be contiguous in its last"),
    Bad("moe_experts", _set(2, torch.ones(4, 32, 6)), "down must have size 5 in dimension 0"),
    Bad("moe_experts", _set(2, torch.ones(5, 32, 6).bfloat16()), "down must have the dtype of x"),
    Bad("moe_experts", _set(3, torch.ones(4, 2).bfloat16()), "weights must be Float"),
    Bad("moe_experts", _set(3, torch.ones(4, 3)), "weights must have size 2 in dimension 1"),
    Bad("moe_experts", _set(4, torch.zeros(4, 2).long()), "ids must be Int"),
    Bad("moe_experts", _set(4, torch.zeros(3, 2, dtype=I32)), "ids must have size 4 in dimension"),
    Bad("rms_norm", _set(0, torch.ones(4, 32, dtype=torch.float64)), "x must be float32 or bf"),
    Bad("rms_norm", _set(0, torch.ones(32, 4).T), "x must be contiguous in its last dimension"),
    Bad("rms_norm", _set(0, torch.tensor(1.0)), "x must have at least one dimension"),
    Bad("rms_norm", _set(1, torch.ones(31)), "weight must have size 32 in dimension 0"),
    Bad("rms_norm", _set(1, torch.ones(32).bfloat16()), "weight must have the dtype of x"),
    Bad("fused_add_rms_norm", _set(1, torch.ones(3, 32)), "residual must have the shape of x"),
    Bad("silu_and_mul", _set(0, torch.ones(4, 31)), "last dimension of x must be even, it is 31"),
    Bad("rotary_embedding", _set(4, 0), "head_dim must be positive"),
    Bad("rotary_embedding", _set(4, 12), "cos rotates 16 values, more than head_dim 12"),
    Bad("rotary_embedding", _set(2, torch.ones(3, 8)), "cos must have size 4 in dimension 0"),
    Bad("rotary_embedding", _set(3, torch.ones(4, 7)), "sin must have size 8 in dimension 1"),
    Bad("rotary_embedding", _set(2, torch.ones(4, 8).bfloat16()), "cos must be Float"),
    Bad("rotary_embedding", _set(1, torch.ones(4, 24)), "k has 24 columns, no multiple of"),
    Bad("kv_write", _set(0, torch.ones(4, 16)), "k must have size 32 in dimension 1"),
    Bad("kv_write", _set(1, torch.ones(3, 32)), "v must have size 4 in dimension 0"),
    Bad("kv_write", _set(2, torch.zeros(2, 4, 2, 16)), "kv_cache must have 5 dimensions"),
    Bad("kv_write", _set(3, torch.arange(4)), "slot_mapping must be Int"),
    Bad("kv_write", _put(3, 2, 8), r"slot_mapping\[2\] is 8, outside the 8 slots"),
    Bad("kv_write", _put(3, 0, -2), r"slot_mapping\[0\] is -2"),
    Bad("paged_attention", _set(0, torch.ones(4, 24)), "out must have size 24 in dimension 1"),
    Bad("paged_attention", _set(5, torch.ones(4, 32).bfloat16()), "out must have the dtype of q"),
    Bad("paged_attention", _set(3, torch.ones(3, dtype=I32)), "seq_lens must have size 2"),
    Bad("paged_attention", _set(4, torch.ones(2, dtype=I32)), "query_start must have size 3"),
    Bad("paged_attention", _put(2, (0, 1), 99), r"block_table\[0, 1\] is 99, outside the"),
    Bad("paged_attention", _put(2, (1, 0), -1), r"block_table\[1, 0\] is -1, outside the"),
    Bad("paged_attention", _put(3, 0, 999), r"seq_lens\[0\] is 999, outside what"),
    Bad("paged_attention", _put(3, 0, 2), r"seq_lens\[0\] is 2, fewer than the 3 query rows"),
    Bad("paged_attention", _put(4, 2, 5), r"query_start\[2\] is 5, it must rise and stay"),
    Bad("paged_attention", _put(4, 1, 9), r"query_start\[1\] is 9"),
    Bad("paged_attention", _put(4, 0, 1), r"query_start\[0\] must be 0"),
    Bad("paged_attention", _set(7, -1), "sliding_window must not be negative"),
    Bad("paged_attention", _set(8, -1.0), "soft_cap must not be negative"),
)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.op}-{bad.message[:24]}")
def test_the_message_names_the_argument(compiled: Any, bad: Bad) -> None:
    arguments = _good(bad.op)
    getattr(compiled, bad.op)(*arguments)
    bad.change(arguments)
    before = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    with pytest.raises(RuntimeError, match=f"{bad.op}: .*{bad.message}|{bad.op}: {bad.message}"):
        getattr(compiled, bad.op)(*arguments)
    for old, new in zip(before, arguments, strict=True):
        assert not isinstance(new, torch.Tensor) or torch.equal(old, new)


def test_a_query_that_is_no_multiple_of_the_heads(compiled: Any) -> None:
    arguments = _good("paged_attention")
    arguments[0], arguments[5] = torch.ones(4, 24), torch.ones(4, 24)
    with pytest.raises(RuntimeError, match="paged_attention: q has 24 columns, no multiple of"):
        compiled.paged_attention(*arguments)
