"""The adapters of a booted model on the CPU: memory of their matrices, and what loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.models.lora.spec import lora_of, shapes_of
from vcc.engine.runtime.adapter_writer import Stacked, empty_stacks, slot_writer
from vcc.engine.runtime.adapters import Adapters
from vcc.engine.runtime.settings import Boot
from vcc.engine.runtime.turn import Turn

Adapting = Callable[[Turn], Adapters | None]
"""Makes the adapters of a runner from its turn; None for code without any."""


def stacks_of(boot: Boot) -> dict[str, torch.Tensor]:
    """The stacked matrices of the artifact's code, without an adapter in any slot.

    Raises:
        IntegrityError: the manifest has no dtype.
    """
    lora, dtype = lora_of(boot.settings.model), boot.settings.model.dtype
    if lora is None:
        return {}
    if dtype is None:
        raise IntegrityError("the manifest has no dtype")
    return empty_stacks(boot.source.spec, lora, DTYPES[dtype.torch_name])


def adapting(boot: Boot, parameters: Mapping[str, torch.Tensor]) -> Adapting:
    """What makes the adapters of a runner.

    Args:
        boot: the artifact.
        parameters: by name; the stacked matrices are among them, as the code reads them.
    """
    lora = lora_of(boot.settings.model)
    if lora is None:
        return lambda turn: None
    spec = boot.source.spec
    stacked: Stacked = {name: parameters[name] for name in shapes_of(spec, lora)}

    def made(turn: Turn) -> Adapters:
        return Adapters(spec, lora, slot_writer(spec, lora, stacked, turn), boot.counters)

    return made


def nobody(turn: Turn) -> None:
    """No adapters."""
