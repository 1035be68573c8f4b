"""TracedForward: an encoder or a vision model of `transformers` as a function of named tensors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vcc.cache.errors import ModelError
from vcc.engine.models.checkpoint_forward import (
    CheckpointRef,
    check_inputs,
    most_positions,
    too_long,
)
from vcc.engine.models.shapes import InputShape
from vcc.engine.models.transformers.model import make_model
from vcc.engine.models.transformers.whole_attention import EAGER, make_whole

ATTENTION = EAGER
"""Which attention a plain forward has where it is not whole: plain torch, compiled by Inductor."""


class TracedForward(nn.Module):
    """Calls the model with the inputs that are declared; gives its tensors in order.

    Args:
        ref: which model.
        dtype: of its weights and floats.
        inputs: names of its inputs.
        whole: attention is a call of torch's own function, of which a trace makes an operator.

    Raises:
        ModelError: the model cannot be made, or has no input of a name.
    """

    def __init__(
        self, ref: CheckpointRef, dtype: torch.dtype, inputs: Sequence[str], *, whole: bool = False
    ) -> None:
        super().__init__()
        config = json.loads(ref.text)
        if whole:
            self.model = make_whole(ref.attribute, config, dtype)
        else:
            self.model = make_model(ref.attribute, config, dtype, attn_implementation=ATTENTION)
        self.model.config.use_cache = False
        _check_inputs(ref, self.model, inputs)

    def forward(self, **inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs that are tensors: `last_hidden_state` first, or `logits`."""
        found = self.model(**inputs, return_dict=True)
        values = found.values() if isinstance(found, Mapping) else (found,)
        tensors = tuple(value for value in values if isinstance(value, Tensor))
        if not tensors:
            raise ModelError("the model gives no tensor", f"it gives a {type(found).__name__}")
        return tensors

    def assign(self, weights: Mapping[str, Tensor]) -> TracedForward:
        """Take these tensors as parameters and stored buffers, without a copy."""
        missing, _ = self.load_state_dict(dict(weights), strict=False, assign=True)
        named = dict(self.named_parameters())
        if lost := [name for name in missing if name in named and named[name].is_meta]:
            raise ModelError(f"no weights for {lost[0]}", "the bindings do not give them")
        return self.requires_grad_(False)


def forward_module(
    ref: CheckpointRef, dtype: torch.dtype, inputs: Sequence[str], *, whole: bool = False
) -> TracedForward:
    """The module, whose `forward` names its inputs; arguments and errors as of the class."""

    class Named(TracedForward):
        """Has a signature, which a trace reads."""

        def forward(self, **inputs: Tensor) -> tuple[Tensor, ...]:
            """As declared."""
            return super().forward(**inputs)

    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kinds) for name in ("self", *inputs)]
    signature: Any = inspect.Signature(parameters)
    Named.forward.__signature__ = signature  # type: ignore[attr-defined]
    return Named(ref, dtype, inputs, whole=whole)


def _check_inputs(ref: CheckpointRef, model: nn.Module, inputs: Sequence[str]) -> None:
    known = [
        one.name
        for one in inspect.signature(model.forward).parameters.values()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    check_inputs(ref.attribute, inputs, known)


def check_positions(
    ref: CheckpointRef, module: TracedForward, shapes: Sequence[InputShape]
) -> None:
    """Refuse texts that are longer than a model's table of positions.

    Raises:
        ModelError: without data no forward finds that out where positions are computed from ids.
    """
    config = json.loads(ref.text)
    limit, error = most_positions(config), too_long(config, shapes)
    if error is None or limit is None:
        return
    for name, one in module.named_modules():
        table = isinstance(one, nn.Embedding) and name.endswith("position_embeddings")
        if table and one.num_embeddings == limit.value:
            raise error
