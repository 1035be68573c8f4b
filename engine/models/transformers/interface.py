"""Our entries in the interfaces of `transformers`: attention, masks and experts.

A model calls them for every layer. What they do with a call is up to the handler of the moment: the
probe writes calls down, the step makes operators of them. `transformers` hands an entry whatever
keywords a model has, and an entry that ignores one computes something else without a word: what is
not known here is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from vcc.cache.errors import ModelError

NAME = "vcc"
"""Of our entries."""

IGNORED = frozenset(
    {
        *("position_ids", "cache_position", "use_cache", "past_key_values", "return_dict"),
        *("output_attentions", "output_hidden_states", "output_router_logits"),
    }
)
"""Keywords that models pass on to every kernel and that change nothing here."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of the attention of a layer.

    Attributes:
        q, k, v: [1, heads, T, head_dim]; fewer heads for k and v where they are grouped.
        mask: what our mask entry gave, or None.
        scale: factor on scores.
        window: of the keyword, in tokens; 0 means none.
        cap: soft cap on scores; 0.0 means none.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scale: float
    window: int
    cap: float


class Handler(Protocol):
    """What becomes of the calls."""

    def attend(self, call: AttentionCall) -> Tensor:
        """The result of a call, [1, T, heads, head_dim]."""

    def mask(self, function: Any, queries: Any) -> Tensor | None:
        """What a model gets for a mask of this many queries."""

    def experts(self, layer: Any, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """What a layer's chosen experts make of x [T, hidden]."""


_handlers: list[Handler] = []


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Let models that were made with our entries call this handler."""
    register()
    _handlers.append(handler)
    try:
        with _sequences_known():
            yield
    finally:
        _handlers.pop()


def register() -> None:
    """Make our entries known to `transformers`, which checks their name when it makes a model."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.moe import ExpertsInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
    ExpertsInterface.register(NAME, _experts)


@contextmanager
def _sequences_known() -> Iterator[None]:
    """Keep `transformers` from guessing sequences from positions: the operator is told them."""
    from transformers import masking_utils

    name = "find_packed_sequence_indices"
    own = getattr(masking_utils, name, None)
    if own is None:  # a release that does not guess
        yield
        return
    setattr(masking_utils, name, lambda position_ids: None)
    try:
        yield
    finally:
        setattr(masking_utils, name, own)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    _check_keywords(module, others)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if causal is not True:
        raise _refused(module, "attention that is not causal", "a step attends to what was before")
    _check_shapes(module, query, key, value)
    call = AttentionCall(
        query,
        key,
        value,
        attention_mask,
        query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        int(sliding_window or 0),
        float(softcap or 0.0),
    )
    return _handlers[-1].attend(call), None


def _check_keywords(module: nn.Module, others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if value is not None and name not in IGNORED:
            raise _refused(
                module,
                f"the attention keyword {name}",
                f"{WHAT_IT_IS.get(name, 'the attention operator does not have it')}, and attention"
                " without it computes something else",
            )


WHAT_IT_IS = {
    "s_aux": "it holds attention sinks",
    "sinks": "it holds attention sinks",
    "position_bias": "it is added to the scores by position",
    "head_mask": "it switches heads off",
    "cu_seq_lens_q": "it packs sequences in a way of its own",
    "cu_seq_lens_k": "it packs sequences in a way of its own",
    "indices": "it chooses keys for each query",
}


def _check_shapes(module: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> None:
    if getattr(module, "is_cross_attention", False) or k.shape[2] != q.shape[2]:
        raise _refused(module, "cross attention", "keys are of other tokens than queries")
    if k.shape[-1] != v.shape[-1] or q.shape[-1] != k.shape[-1]:
        sizes = f"{q.shape[-1]}, {k.shape[-1]} and {v.shape[-1]}"
        raise _refused(module, "heads of different sizes", f"query, key and value have {sizes}")


def _mask(
    batch_size: int = 1,
    q_length: Any = None,
    kv_length: Any = None,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> Tensor | None:
    if attention_mask is not None:
        raise ModelError(
            "the model has an attention mask of its own",
            "a step says which tokens are whose by its block table",
            "supported are causal masks, with a sliding window or without",
        )
    return _handlers[-1].mask(mask_function, q_length)


def _experts(
    layer: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    for wrong, what in _EXPERTS:
        if wrong(layer):
            raise _refused(layer, f"experts with {what}", "the operator has gated SiLU experts")
    return _handlers[-1].experts(layer, hidden_states, top_k_index, top_k_weights)


_EXPERTS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda layer: getattr(layer, "has_bias", False), "biases"),
    (lambda layer: not getattr(layer, "has_gate", True), "no gate"),
    (lambda layer: getattr(layer, "is_transposed", False), "transposed weights"),
    (lambda layer: not getattr(layer, "is_concatenated", True), "gate and up interleaved"),
    (lambda layer: getattr(layer, "has_post_expert_norm", False), "a norm of their own"),
    (
        lambda layer: type(layer)._apply_gate.__module__ != "transformers.integrations.moe",
        "a gate of their own",
    ),
    (lambda layer: not type(layer.act_fn).__name__.startswith("SiLU"), "another activation"),
)


def _refused(module: nn.Module, what: str, why: str) -> ModelError:
    return ModelError(
        f"{what} is not supported",
        f"{type(module).__name__} of transformers has it: {why}",
        "supported are causal decoders whose attention has queries, keys and values alone",
    )
