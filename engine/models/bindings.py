"""Bindings of a decoder: which tensors its checkpoint holds and how they become its parameters.

Torch-free. Tensor names are those that transformers writes for the supported architectures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import eq

from vcc.cache.canonical import MAX_BYTES
from vcc.cache.errors import ModelError
from vcc.engine.models.architectures import DecoderSpec
from vcc.engine.models.expression_text import parse
from vcc.engine.models.expressions import Binding, FromTensor, Tied
from vcc.engine.models.layer_weights import Weight, layer_weights, stacked_in
from vcc.engine.models.quant.kv import named_in
from vcc.engine.models.quant.spec import FP8
from vcc.engine.models.quant.stored import wrong_dtype
from vcc.engine.models.quant.weights import Scales, same_shape, scales_of
from vcc.engine.models.tensor_info import Shape, TensorInfo
from vcc.engine.models.traced_spec import TracedSpec

__all__ = [
    "EMBED",
    "HEAD",
    "Binding",
    "bindings_of",
    "check",
    "check_bytes",
    "check_number",
    "expected_tensors",
    "laid_out",
    "parse",
]

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"

_IGNORED_SUFFIX = ".rotary_emb.inv_freq"
"""Old Llama checkpoints store it; it is computed here."""

_SHOWN = 5


def bindings_of(
    spec: DecoderSpec, tensors: Mapping[str, TensorInfo] | None = None
) -> Mapping[str, Binding]:
    """A binding for each parameter of `Decoder(spec)`, by parameter name.

    Args:
        spec: the decoder.
        tensors: the checkpoint's tensors; when given they are checked first.

    Raises:
        ModelError: config and weights disagree.
    """
    if isinstance(spec, TracedSpec):
        from vcc.engine.models.transformers.bound import traced_bindings  # with torch

        return traced_bindings(spec, tensors)
    if tensors is not None:
        check(spec, tensors)
    return dict(_bindings(spec))


def check_number(spec: DecoderSpec) -> None:
    """Refuse a decoder whose bindings no manifest can hold.

    Raises:
        ModelError: with how many layers there are and how many could be.
    """
    if not isinstance(spec, TracedSpec):  # whose bindings are known when it is made
        check_bytes(spec, dict(_bindings(spec)))


def check_bytes(spec: DecoderSpec, bindings: Mapping[str, Binding]) -> None:
    """Refuse bindings that no manifest can hold; errors as `check_number`."""
    size = sum(len(name) + len(str(binding)) + _QUOTES for name, binding in bindings.items())
    if size > MOST_BYTES:
        raise ModelError(
            f"{spec.layers} layers are too many for one artifact",
            f"its manifest has at most {MAX_BYTES} bytes; where the weights are takes {size}",
            f"about {spec.layers * MOST_BYTES // size} layers of this kind fit",
        )


MOST_BYTES = MAX_BYTES - (64 << 10)
"""Of the manifest, for bindings; the rest is for requests, keys, blobs and pieces."""

_QUOTES = 10
"""Bytes of JSON around a binding: `"name":"expression",` and quotes inside that are escaped."""


def laid_out(spec: DecoderSpec, tensors: Mapping[str, TensorInfo]) -> DecoderSpec:
    """The decoder as these tensors have it: experts by themselves or stacked, names of scales."""
    if spec.kv is not None and spec.kv.scales:
        spec = replace(spec, kv=named_in(spec.kv, spec.layers, tensors))
    if spec.experts is None:
        return spec
    return replace(spec, experts=replace(spec.experts, stacked=stacked_in(spec, tensors)))


def expected_tensors(spec: DecoderSpec) -> Mapping[str, Shape]:
    """Name and shape of every tensor that a checkpoint of this decoder must hold.

    Of a decoder of `transformers` none: its model knows them, which is made by the build.
    """
    if isinstance(spec, TracedSpec):
        return {}
    expected = {EMBED: (spec.vocab, spec.hidden), "model.norm.weight": (spec.hidden,)}
    for weight in all_weights(spec):
        expected.update(weight.tensors())
    return expected


def all_weights(spec: DecoderSpec) -> Iterator[Weight | Scales]:
    """The weights of the output head, where it has its own, and of all layers."""
    if not spec.tied:
        module = HEAD.removesuffix(".weight")
        fp8 = spec.quant is not None and spec.quant.covers([module])
        yield Weight("head.weight", ((HEAD, (spec.vocab, spec.hidden)),), fp8=fp8)
        if spec.quant is not None and fp8:
            yield from scales_of(spec.quant, "head", ((module, spec.vocab),), spec.hidden)
    for index in range(spec.layers):
        yield from layer_weights(spec, index)


def check(spec: DecoderSpec, tensors: Mapping[str, TensorInfo]) -> None:
    """Refuse a checkpoint that is not what the config says.

    Raises:
        ModelError: with the first five differences.
    """
    if isinstance(spec, TracedSpec):
        return  # the build holds them against the model
    differences = list(_differences(spec, tensors))
    if not differences:
        return
    more = len(differences) - _SHOWN
    shown = "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    raise ModelError(
        "config.json and the weights disagree",
        shown,
        "use the config.json that belongs to this checkpoint",
    )


def _differences(spec: DecoderSpec, tensors: Mapping[str, TensorInfo]) -> Iterator[str]:
    expected, kinds = expected_tensors(spec), stored_kinds(spec)
    for name, shape in expected.items():
        kind = kinds.get(name, "")
        if name not in tensors:
            yield f"{name} is missing"
        elif not (same_shape if kind == "scale" else eq)(tensors[name].shape, shape):
            yield f"{name} is {list(tensors[name].shape)}, the config says {list(shape)}"
        elif why := wrong_dtype(tensors[name].dtype, kind):
            yield f"{name} is {tensors[name].dtype}, {why}"
    for name in tensors:
        if name not in expected and not _ignored(spec, name, tensors):
            yield f"{name} is not part of the model"


def _ignored(spec: DecoderSpec, name: str, tensors: Mapping[str, TensorInfo]) -> bool:
    """A stored copy of a tied head is fine here; `load_weights` checks that it is one."""
    tied_head = spec.tied and name == HEAD and tensors[name].shape == (spec.vocab, spec.hidden)
    return tied_head or name.endswith(_IGNORED_SUFFIX)


def stored_kinds(spec: DecoderSpec) -> Mapping[str, str]:
    """The tensors of a quantised checkpoint that are `fp8` weights or a `scale`, by name."""
    if spec.quant is None:
        return {}
    return {
        name: "scale" if isinstance(weight, Scales) else "fp8"
        for weight in all_weights(spec)
        if isinstance(weight, Scales) or weight.fp8
        for name, _ in weight.tensors()
    }


def parameter_dtypes(spec: DecoderSpec) -> Mapping[str, str]:
    """Parameters that are not in the model's dtype: fp8 weights, and scales in fp32."""
    if spec.quant is None:
        return {}
    return {
        weight.parameter: "float32" if isinstance(weight, Scales) else FP8
        for weight in all_weights(spec)
        if isinstance(weight, Scales) or weight.fp8
    }


def _bindings(spec: DecoderSpec) -> Iterator[tuple[str, Binding]]:
    yield "embed.weight", FromTensor(EMBED)
    yield "norm.weight", FromTensor("model.norm.weight")
    if spec.tied:
        yield "head.weight", Tied("embed.weight")
    for weight in all_weights(spec):
        yield weight.parameter, weight.binding()
