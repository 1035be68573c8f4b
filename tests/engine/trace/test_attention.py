"""Attention that is traced as products is torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from vcc.engine.trace.attention import plain_attention

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "added": {"attn_mask": torch.linspace(-2, 2, 35).view(5, 7)},
    "masked": {"attn_mask": torch.arange(35).view(5, 7) % 3 > 0},
    "a row without keys": {"attn_mask": torch.arange(5)[:, None].expand(5, 7) > 0},
    "grouped": {"enable_gqa": True},
}


def inputs(heads: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, 4, 5, 8), (2, heads, 7, 8), (2, heads, 7, 6))
    q, k, v = (torch.randn(size, generator=generator) for size in sizes)
    return q, k, v


@pytest.mark.parametrize("case", CASES)
def test_it_is_torchs_own(case: str) -> None:
    given, options = inputs(2 if case == "grouped" else 4), CASES[case]
    wanted = functional.scaled_dot_product_attention(*given, **options)
    with plain_attention():
        found = functional.scaled_dot_product_attention(*given, **options)
        assert not torch.equal(found, wanted) or case == "a row without keys"  # another way
    torch.testing.assert_close(found, wanted)


def test_positions_of_arguments_and_dropout_that_is_off_change_nothing() -> None:
    q, k, v = inputs(4)
    with plain_attention():
        found = functional.scaled_dot_product_attention(q, k, v, None, 0.0, False)
    torch.testing.assert_close(found, functional.scaled_dot_product_attention(q, k, v))


def test_attention_with_dropout_stays_torchs() -> None:
    q, k, v = inputs(4)
    torch.manual_seed(3)
    wanted = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(3)
    with plain_attention():
        found = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert torch.equal(found, wanted)


def calls(*given: torch.Tensor, **options: Any) -> tuple[int, list[str]]:
    """How many calls of our operator a trace has, and what it notes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    notes: list[str] = []

    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*tensors, **options)

    with plain_attention(notes.append):
        graph = make_fx(attend)(*given).graph
    ours = torch.ops.vcc.plain_attention.default
    return len(graph.find_nodes(op="call_function", target=ours)), notes


@pytest.mark.parametrize("case", CASES)
def test_what_our_kernel_takes_is_one_call(case: str) -> None:
    assert calls(*inputs(2 if case == "grouped" else 4), **CASES[case]) == (1, [])


Q = torch.randn(2, 4, 5, 8)
NOT_TAKEN: dict[str, tuple[tuple[torch.Tensor, ...], dict[str, Any], str]] = {
    "rank": ((Q[None], Q[None], Q[None]), {}, "tensors of 5, 5, 5 dimensions"),
    "type": ((Q.double(), Q.double(), Q.double()), {}, "elements are float64, float64, float64"),
    "width": ((Q.repeat(1, 1, 1, 17),) * 2 + (Q,), {}, "a head has more than 128 values"),
    "batch": ((Q, Q[:1], Q[:1]), {}, "sizes [2, 4, 5, 8], [1, 4, 5, 8], [1, 4, 5, 8] repeat"),
    "mask": ((Q,) * 3, {"attn_mask": torch.ones(5, 5).double()}, "its mask is float64"),
    "larger": (
        (Q[:1],) * 3,
        {"attn_mask": torch.ones(2, 1, 5, 5) > 0},
        "its mask of [2, 1, 5, 5] is no part of [1, 4, 5, 5]",
    ),
}


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_what_it_does_not_take_is_said_once(case: str) -> None:
    given, options, why = NOT_TAKEN[case]
    found = calls(*given, **options)
    assert found == (0, [f"attention is products and a softmax: {why}"])


def test_a_reason_is_not_repeated() -> None:
    notes: list[str] = []
    with plain_attention(notes.append):
        for _ in range(2):
            functional.scaled_dot_product_attention(*(Q.double(),) * 3)
    assert len(notes) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operator_is_what_its_fake_says(dtype: torch.dtype) -> None:
    from torch.library import opcheck

    q, k, v = (one.to(dtype) for one in inputs(2))
    mask = torch.rand(5, 7) > 0.5
    for given in ((q, k, v, mask, False, 0.3), (q[0], q[0], q[0], None, True, 0.3)):
        opcheck(torch.ops.vcc.plain_attention.default, given)
