"""Our entry for the attention of plain forwards: a call of torch's own function where it is that.

`transformers` writes the same attention in several ways. Its `eager` one is products and a softmax,
which a trace cannot tell from any others; its `sdpa` one takes masks of booleans, with which a row
that sees nothing is zero and not the mean of all values. This entry has the masks of `eager`, and a
call with anything that torch's function does not have goes to the `eager` function of its model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vcc.cache.errors import ModelError
from vcc.engine.models.transformers.interface import IGNORED
from vcc.engine.models.transformers.model import make_model

EAGER, WHOLE = "eager", "vcc_whole"
"""Plain torch, and our entry."""

KNOWN = IGNORED | {"is_causal"}
"""Keywords that change nothing in an eager attention: what a row sees is in its mask."""


def make_whole(architecture: str, config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """The model with our entry, or with `eager` where its code has no place for one.

    Arguments and errors are those of `make_model`.
    """
    _register()
    try:
        model = make_model(architecture, config, dtype, attn_implementation=WHOLE)
    except ModelError:  # a fault of the config shows again
        return make_model(architecture, config, dtype, attn_implementation=EAGER)
    if all(getattr(one, "_supports_sdpa", True) for one in model.modules()):
        return model
    return make_model(architecture, config, dtype, attn_implementation=EAGER)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(WHOLE, _attention)
    AttentionMaskInterface.register(WHOLE, eager_mask)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    more = [one for name, one in others.items() if name not in KNOWN and one is not None]
    if more or others.get("output_attentions"):
        given = {"scaling": scaling, "dropout": dropout, **others}
        found: tuple[Tensor, Tensor | None] = _eager(module)(
            module, query, key, value, attention_mask, **given
        )
        return found
    made = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attention_mask,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return made.transpose(1, 2).contiguous(), None


def _eager(module: nn.Module) -> Callable[..., Any]:
    """The function that a model of `transformers` has beside its layers for `eager`."""
    home = inspect.getmodule(type(module))
    found: Callable[..., Any] | None = getattr(home, "eager_attention_forward", None)
    if found is None:
        raise ModelError(
            f"the attention of {type(module).__name__} is not supported",
            "it has keywords that torch's own attention lacks, and no function that is eager",
            "compile it as package.module:factory",
        )
    return found
