"""The probe: one forward of a model without data, which writes down how its layers attend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vcc.cache.errors import ModelError
from vcc.engine.models.traced_spec import TracedSpec
from vcc.engine.models.transformers.interface import AttentionCall, handled_by
from vcc.engine.models.transformers.masks import window_of

TOKENS = 8
"""Of the forward; it has no data, so any number shows the same."""


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """How a layer attends.

    Attributes:
        heads, kv_heads, head_dim: sizes.
        scale: factor on scores.
        window: tokens that a token sees; 0 means all before it.
        cap: soft cap on scores; 0.0 means none.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int
    cap: float


def attention_of(model: nn.Module, spec: TracedSpec) -> tuple[LayerAttention, ...]:
    """How each layer of a model attends, in the order of its calls.

    Args:
        model: made with our entries; parameters and buffers on the meta device.
        spec: what its config says.

    Raises:
        ModelError: a layer attends in a way that no step has, or not through the interface, or
            the model has other sizes than its config says.
    """
    probe = _Probe(spec)
    ids = torch.zeros((1, TOKENS), dtype=torch.int64, device="meta")
    with torch.device("meta"), torch.no_grad(), handled_by(probe):
        try:
            model(input_ids=ids, position_ids=ids, use_cache=False)
        except (ModelError, MemoryError):
            raise
        except Exception as error:  # code of transformers
            raise _failed(spec.architecture, error) from error
    _check(spec, probe.found)
    return tuple(probe.found)


def _failed(architecture: str, error: Exception) -> ModelError:
    """A forward that asks for data, or that fails for another reason."""
    why = f"{type(error).__name__}: {error!s:.300}"
    if isinstance(error, NotImplementedError) or "meta" in str(error):
        hint = "its forward depends on what its tensors hold, which a build does not know"
        return ModelError(f"{architecture} cannot run without data", why, hint)
    hint = "compare config.json with that of the published model"
    return ModelError(f"{architecture} does not run as config.json has it", why, hint)


@dataclass(slots=True)
class _Probe:
    spec: TracedSpec
    found: list[LayerAttention] = field(default_factory=list)
    masks: list[tuple[Tensor, int]] = field(default_factory=list)

    def attend(self, call: AttentionCall) -> Tensor:
        """Write the call down."""
        _, heads, tokens, head_dim = call.q.shape
        window = self._window(call)
        found = LayerAttention(heads, call.k.shape[1], head_dim, call.scale, window, call.cap)
        self.found.append(found)
        return call.q.new_empty((1, tokens, heads, head_dim))

    def mask(self, function: Any, queries: Any) -> Tensor | None:
        """A token that says which mask a layer gets."""
        window = window_of(function, self.spec.max_positions)
        if window is None:
            raise ModelError(
                f"{self.spec.architecture} has a mask of its own",
                "it allows other keys than those before a token, all or within a window",
                "supported are causal masks, with a sliding window or without",
            )
        made = torch.empty((1, 1, TOKENS, TOKENS), device="meta")
        self.masks.append((made, window))
        return made

    def experts(self, layer: Any, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """Nothing to write down."""
        return torch.empty_like(x)

    def _window(self, call: AttentionCall) -> int:
        """Its mask's: kernels that take the keyword take it beside a mask that says the same."""
        of_mask = next((window for made, window in self.masks if made is call.mask), None)
        if call.mask is not None and of_mask is None:
            raise ModelError(
                f"{self.spec.architecture} has an attention mask of its own",
                "it is not the one that transformers made for the layer",
                "supported are causal masks, with a sliding window or without",
            )
        named = call.window if call.window < self.spec.max_positions else 0
        if named != (of_mask or 0):
            raise ModelError(
                f"the windows of {self.spec.architecture} are not clear",
                f"a layer's mask has {of_mask or 'none'}, its attention is told {named or 'none'}",
                "kernels of transformers differ there; without sliding_window both have none",
            )
        return named


def _check(spec: TracedSpec, found: list[LayerAttention]) -> None:
    """Refuse a model that is not what its config says."""
    if not found:
        raise ModelError(
            f"{spec.architecture} has attention of its own",
            "it does not go through the attention interface of transformers",
            "supported are the models whose code calls ALL_ATTENTION_FUNCTIONS",
        )
    if len(found) != spec.layers:
        raise ModelError(
            f"not every layer of {spec.architecture} attends through the interface",
            f"config.json has {spec.layers} layers, {len(found)} called it",
            "layers with a state or of linear attention are not supported; where all attend, write"
            " their number into config.json",
        )
    for name, wanted in (("kv_heads", spec.kv_heads), ("head_dim", spec.head_dim)):
        sizes = {getattr(layer, name) for layer in found}
        if sizes != {wanted}:
            raise ModelError(
                f"config.json and the model differ in {name}",
                f"the config means {wanted}, the model of transformers has"
                f" {', '.join(map(str, sorted(sizes)))}",
                f"write {_FIELDS[name]} into config.json; layers that differ are not supported",
            )


_FIELDS = {"kv_heads": "num_key_value_heads", "head_dim": "head_dim"}
