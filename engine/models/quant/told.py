"""What an artifact and a build say of a quantised model: the scheme, and what multiplies."""

from __future__ import annotations

from typing import Any

from vcc.engine import native
from vcc.engine.config.modes import Platform
from vcc.engine.models.bindings import all_weights
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.layer_weights import Weight

OPERATOR, EXPERTS = "scaled_linear", "scaled_experts"


def quant_rows(spec: DecoderSpec | None, platform: Platform) -> list[dict[str, Any]]:
    """Rows beside those of the custom ops; none for a model that is not quantised.

    Args:
        spec: the decoder; None where the model is none.
        platform: where steps run. The compiled kernels are those of the install that builds.
    """
    if spec is None or spec.quant is None:
        return []
    compiled = "native" if native.library("vcc_ops") is None else "cpu"
    backend = "triton" if platform is Platform.CUDA else compiled
    stored = (one for one in all_weights(spec) if isinstance(one, Weight) and one.fp8)
    found = {EXPERTS if one.each else OPERATOR for one in stored}
    ops = [OPERATOR, *sorted(found - {OPERATOR})]
    reason = str(spec.quant)
    return [{"op": op, "backend": backend, "reason": reason, "refused": []} for op in ops]
