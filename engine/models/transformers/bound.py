"""Bindings of a model of `transformers`, by the names of `TracedDecoder` and `TracedForward`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from vcc.cache.errors import ModelError
from vcc.engine.models.bindings import check_bytes
from vcc.engine.models.checkpoint_forward import CheckpointRef
from vcc.engine.models.expressions import Binding, Tied
from vcc.engine.models.tensor_info import Shape, TensorInfo
from vcc.engine.models.traced_spec import TracedSpec
from vcc.engine.models.transformers.forward import ATTENTION
from vcc.engine.models.transformers.interface import NAME, register
from vcc.engine.models.transformers.model import make_model
from vcc.engine.models.transformers.names import bind, saved_shapes

if TYPE_CHECKING:
    from vcc.engine.models.source import Source

PREFIX = "model."
"""Where the model is in them."""


def traced_bindings(
    spec: TracedSpec, tensors: Mapping[str, TensorInfo] | None = None
) -> Mapping[str, Binding]:
    """A binding for each parameter and stored buffer of `TracedDecoder(spec)`.

    Args:
        spec: which model.
        tensors: the checkpoint's tensors; None or empty means as `transformers` saves it.

    Raises:
        ModelError: transformers is not there, or config and weights disagree.
    """
    bindings = _named(bind(_decoder(spec), tensors))
    check_bytes(spec, bindings)
    return bindings


def bound(source: Source) -> tuple[Mapping[str, Binding], Mapping[str, Shape]]:
    """The bindings of a source, and the shapes of the tensors that they are over.

    Raises:
        ModelError: as `traced_bindings`.
    """
    model = skeleton(source)
    stored = {name: one.shape for name, one in source.tensors.items()}
    shapes = stored or saved_shapes(model)
    return _named(bind(model, source.tensors)), shapes


def _named(bindings: Mapping[str, Binding]) -> dict[str, Binding]:
    return {
        PREFIX + name: Tied(PREFIX + one.name) if isinstance(one, Tied) else one
        for name, one in bindings.items()
    }


def skeleton(source: Source) -> Any:
    """The model of a source, for its names and shapes alone.

    Raises:
        ModelError: the source is a built-in decoder, or `transformers` cannot make its model.
    """
    if isinstance(source.factory, CheckpointRef):
        return _forward(source.factory)
    spec = source.spec
    if not isinstance(spec, TracedSpec):
        raise ModelError(f"{source.name} is no model of transformers")
    return _decoder(spec)


@lru_cache(maxsize=2)
def _decoder(spec: TracedSpec) -> Any:
    register()
    return make_model(
        spec.architecture,
        spec.config,
        torch.float32,
        attn_implementation=NAME,
        experts_implementation=NAME,
    )


@lru_cache(maxsize=2)
def _forward(ref: CheckpointRef) -> Any:
    return make_model(
        ref.attribute, json.loads(ref.text), torch.float32, attn_implementation=ATTENTION
    )
