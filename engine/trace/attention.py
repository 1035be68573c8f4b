"""Attention of torch's own function as products and a softmax, for targets without its kernels.

`scaled_dot_product_attention` chooses one of torch's fused kernels by asking the device, which need
not be there, and a node table holds none of them. Inside `plain_attention` it is traced as what its
documentation says it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@contextmanager
def plain_attention() -> Iterator[None]:
    """Inside, torch's attention is `attention`; one with dropout stays what it is."""
    with _Plain():
        yield


class _Plain(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if function is not functional.scaled_dot_product_attention or _drops(args, given):
            return function(*args, **given)
        given.pop("dropout_p", None)
        plain = [one for index, one in enumerate(args) if index != DROPOUT]
        return attention(*plain, **given)


DROPOUT = 4
"""Position of dropout_p."""


def _drops(args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    return bool(args[DROPOUT] if len(args) > DROPOUT else given.get("dropout_p", 0.0))


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
    factor = 1.0 / sqrt(query.shape[-1]) if scale is None else scale
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
