"""What becomes of a factory's weights of other dtypes: real ones are converted, and it is told."""

from __future__ import annotations

import torch
from torch import nn

from vcc.cache.errors import ModelError


def converted(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module, whose floating-point weights are of this dtype now.

    Raises:
        ModelError: a weight is complex: its imaginary part would be lost.
    """
    if lost := [name for name, one in _weights(module).items() if one.is_complex()]:
        raise ModelError(
            f"{lost[0]} of the module is complex",
            f"weights are converted to {_name(dtype)}, which would lose its imaginary part",
            "keep the real and the imaginary part as two parameters, or use torch.view_as_real",
        )
    return module.to(dtype)


def conversion_note(module: nn.Module, dtype: torch.dtype) -> str:
    """What is to be said of weights that are converted from another dtype than torch's default.

    Args:
        module: of a factory, with weights as it made them.
        dtype: that they get.

    Returns:
        One line; empty where weights are fp32 or of `dtype`.
    """
    found = {one.dtype for one in _weights(module).values() if one.is_floating_point()}
    others = sorted(_name(one) for one in found - {dtype, torch.float32})
    if not others:
        return ""
    return f"weights of {', '.join(others)} are converted to {_name(dtype)}; --dtype names another"


def _weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
