"""Experts of a quantised checkpoint: refused, as kernels take the model's dtype. Torch-free."""

from __future__ import annotations

from vcc.engine.models.quant.fields import refused
from vcc.engine.models.quant.spec import QuantSpec


def refuse_experts(quant: QuantSpec | None, block: str, names: tuple[str, ...]) -> None:
    """Refuse fp8 experts and routers; a checkpoint that ignores them is fine.

    Args:
        quant: the scheme, or None.
        block: the module of a sparse layer.
        names: of the projections of an expert.

    Raises:
        ModelError: they are quantised.
    """
    if quant is None:
        return
    routers = [f"{block}.gate", f"{block}.shared_expert_gate"]
    if quant.covers([f"{block}.experts.0.{name}" for name in names]):
        raise refused(
            "fp8 experts are not supported",
            f"{block}.experts are quantised, and vcc::moe_experts multiplies in the model's dtype",
        )
    if any(quant.covers([router]) for router in routers):
        raise refused(
            "fp8 routers are not supported", f"{block}.gate is quantised; name it in ignore"
        )
