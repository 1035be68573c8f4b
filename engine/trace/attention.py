"""Attention of torch's own function as an operator of ours, for targets without its kernels.

`scaled_dot_product_attention` chooses one of torch's fused kernels by asking the device, which need
not be there, and a node table holds none of them. Inside `plain_attention` it is traced as one call
of `vcc::plain_attention`, for which the planner writes a launch of ours; and where that kernel does
not take it, as the products and the softmax that its documentation says it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from vcc.engine.ops.native_attention import attention, factor_of
from vcc.engine.ops.register import load_ops

DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
MOST_RANK, MOST_WIDTH = 4, 128
"""Dimensions of a tensor, and values of a head, that our kernel takes at most."""


@contextmanager
def plain_attention(note: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Inside, torch's attention is ours, or `attention`; one with dropout stays what it is.

    Args:
        note: is told why attention is products and a softmax, once for each reason.
    """
    load_ops()
    with _Plain(note):
        yield


class _Plain(TorchFunctionMode):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note, self._told = note, set[str]()

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
        call = signature(attention).bind(*plain, **given)
        call.apply_defaults()
        return self._attended(**call.arguments)

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, **rest: Any
    ) -> Tensor:
        if why := not_taken(query, key, value, attn_mask, rest["enable_gqa"]):
            self._tell(f"attention is products and a softmax: {why}")
            return attention(query, key, value, attn_mask, **rest)
        factor = factor_of(query, rest["scale"])
        found: Tensor = torch.ops.vcc.plain_attention(
            query, key, value, attn_mask, rest["is_causal"], factor
        )
        return found

    def _tell(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            self._note(reason)


DROPOUT = 4
"""Position of dropout_p."""


def _drops(args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    return bool(args[DROPOUT] if len(args) > DROPOUT else given.get("dropout_p", 0.0))


def not_taken(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool) -> str:
    """Why our kernel does not take a call; empty where it does.

    Sizes that have to be equal are compared, from which a trace learns what it learns of products.

    Args:
        query: [..., H, T, D].
        key, value: [..., H or H / n, S, D] and as many of another width.
        mask: of booleans, or what is added to scores; it repeats over [..., H, T, S].
        grouped: whether keys and values may have fewer heads.
    """
    three = (query, key, value)
    rank, widths = query.dim(), {one.shape[-1] for one in three}
    if not 2 <= rank <= MOST_RANK or any(one.dim() != rank for one in three):
        return f"tensors of {', '.join(str(one.dim()) for one in three)} dimensions"
    if len({one.dtype for one in three}) > 1 or query.dtype not in DTYPES:
        return f"elements are {', '.join(_name(one) for one in three)}"
    if not all(isinstance(one, int) and one <= MOST_WIDTH for one in widths):
        return f"a head has more than {MOST_WIDTH} values"
    if not _agree(three, grouped):
        return f"sizes {', '.join(str(list(one.shape)) for one in three)} repeat"
    scored = (*query.shape[:-1], key.shape[-2])
    return "" if mask is None else _mask_not_taken(mask, scored)


def _mask_not_taken(mask: Tensor, scored: Sequence[Any]) -> str:
    if mask.dtype is not torch.bool and mask.dtype not in DTYPES:
        return f"its mask is {_name(mask)}"
    pairs = zip(reversed(mask.shape), reversed(scored), strict=False)
    fits = all(_is_one(size) or size == other for size, other in pairs)
    if mask.dim() > len(scored) or not fits:
        return f"its mask of {list(mask.shape)} is no part of {list(scored)}"
    return ""


def _agree(three: Sequence[Tensor], grouped: bool) -> bool:
    """Whether batches, heads and keys are as many as they have to be."""
    query, key, value = three
    keys = all(a == b for a, b in zip(key.shape[:-1], value.shape[:-1], strict=True))
    batches = all(a == b for a, b in zip(query.shape[:-3], key.shape[:-3], strict=True))
    if not keys or not batches or query.shape[-1] != key.shape[-1]:
        return False
    if query.dim() == 2:
        return True
    heads, shared = query.shape[-3], key.shape[-3]
    if not grouped:
        return bool(heads == shared)
    return isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
