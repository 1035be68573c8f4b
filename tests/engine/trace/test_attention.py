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
