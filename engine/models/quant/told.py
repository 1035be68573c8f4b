"""What an artifact and a build say of a quantised model: the scheme, and what multiplies."""

from __future__ import annotations

from typing import Any

from vcc.engine import native
from vcc.engine.config.modes import Platform
from vcc.engine.models.quant.spec import QuantSpec

OPERATOR = "scaled_linear"


def quant_rows(quant: QuantSpec | None, platform: Platform) -> list[dict[str, Any]]:
    """A row beside those of the custom ops; none for a model that is not quantised.

    Args:
        quant: the scheme.
        platform: where steps run. The compiled kernels are those of the install that builds.
    """
    if quant is None:
        return []
    compiled = "native" if native.library("vcc_ops") is None else "cpu"
    backend = "triton" if platform is Platform.CUDA else compiled
    return [{"op": OPERATOR, "backend": backend, "reason": str(quant), "refused": []}]
