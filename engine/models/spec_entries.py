"""What a request says of a decoder: its spec, field by field, and its tensors. Torch-free."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from vcc.cache.digest import Digest
from vcc.cache.key import canonical_value
from vcc.engine.models.bindings import expected_tensors
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.quant.spec import QuantSpec
from vcc.engine.models.traced_spec import TracedSpec, traced_entries


def decoder_entries(spec: DecoderSpec) -> tuple[tuple[str, str], ...]:
    """Labels of `model.` with their text, of a spec for which nothing is settled yet."""
    if isinstance(spec, TracedSpec):
        return traced_entries(spec)
    plain = {
        entry.name: getattr(spec, entry.name)
        for entry in fields(spec)
        if entry.name not in ("ropes", "experts", "quant", "kv")
    }
    for index, rope in enumerate(spec.ropes):
        plain |= _flat(f"rope.{index}" if index else "rope", rope)
    plain |= _flat("experts", spec.experts) if spec.experts else {}
    plain |= _quantisation(spec.quant)
    plain |= {"kv_scales": "checkpoint"} if spec.kv else {}  # whose names are among the tensors
    lines = "".join(f"{name} {list(shape)}\n" for name, shape in expected_tensors(spec).items())
    return (
        *((f"model.{label}", canonical_value(value)) for label, value in plain.items()),
        ("model.tensors", Digest.of(lines.encode()).hex),
    )


def _quantisation(quant: QuantSpec | None) -> dict[str, Any]:
    """Which modules are quantised is told by the tensors: their scales are among them."""
    if quant is None:
        return {"quantisation": "none"}
    lists = ("quantisation.targets", "quantisation.ignore")
    every = _flat("quantisation", quant)
    return {name: value for name, value in every.items() if name not in lists}


def _flat(label: str, value: Any) -> dict[str, Any]:
    return {f"{label}.{entry.name}": getattr(value, entry.name) for entry in fields(value)}
