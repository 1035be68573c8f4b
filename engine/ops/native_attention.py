"""Attention of whole rows in plain torch, and the operator as which builds for a GPU trace it."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

NAME = "plain_attention"
SCHEMA = (
    f"{NAME}(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float scale)"
    " -> Tensor"
)


def define(library: torch.library.Library) -> None:
    """Define the operator, its Meta implementation and the one of the CPU."""
    library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(NAME, _meta, "Meta")
    library.impl(NAME, _plain, "CPU")


def _meta(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """[..., H, T, width of a value]; with batches tokens lie outside of heads, as models go on."""
    if query.dim() < 4:
        return query.new_empty((*query.shape[:-1], value.shape[-1]))
    batch, heads, tokens, _ = query.shape
    return query.new_empty((batch, tokens, heads, value.shape[-1])).transpose(1, 2)


def _plain(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """`attention`; [B, H / n, S, width] of keys and values serve n heads each."""
    grouped = query.dim() > 2 and query.shape[-3] != key.shape[-3]
    made = attention(query, key, value, mask, is_causal, scale=scale, enable_gqa=grouped)
    laid = _meta(query, key, value, mask, is_causal, scale)
    return laid.copy_(made)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As `torch.nn.functional.scaled_dot_product_attention` without dropout; softmax in fp32.

    A row whose keys are all masked gives zeros, as there.
    """
    if enable_gqa:
        key, value = (
            one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value)
        )
    factor = factor_of(query, scale)
    scores = (query @ key.transpose(-2, -1)).float() * factor
    if is_causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
        scores = scores.masked_fill(~ones.tril(), float("-inf"))
    if attn_mask is None:
        return scores.softmax(-1).to(value.dtype) @ value
    if attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    else:
        scores = scores + attn_mask
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    shares = scores.softmax(-1).masked_fill(empty, 0.0)
    return shares.to(value.dtype) @ value


def factor_of(query: Tensor, scale: float | None) -> float:
    """What scores are multiplied with."""
    return 1.0 / sqrt(query.shape[-1]) if scale is None else scale
