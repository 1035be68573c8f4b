"""Write an adapter's matrices into a slot of the stacked weights, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.lora.adapter import Adapter
from vcc.engine.models.lora.spec import A, B, LoraSpec, Projection, projections, shapes_of
from vcc.engine.models.lora.weights_file import Read
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.runtime.turn import Turn

Stacked = Mapping[str, torch.Tensor]
"""Stacked matrices by parameter name."""


def empty_stacks(spec: DecoderSpec, lora: LoraSpec, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The stacked matrices without any adapter; pages that nobody writes cost nothing."""
    shapes = shapes_of(spec, lora)
    return {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}


def slot_writer(
    spec: DecoderSpec, lora: LoraSpec, stacked: Stacked, turn: Turn
) -> Callable[[int, Adapter | None], None]:
    """What puts an adapter into a slot: rows of that slot alone are written.

    Args:
        spec, lora: what the code was compiled for.
        stacked: of `empty_stacks`, as the code reads them.
        turn: of the runner; nothing is written while a step runs.
    """
    places = projections(spec, lora)

    def write(slot: int, adapter: Adapter | None) -> None:
        with turn.taken(), torch.no_grad():
            for one in places:
                for name in (A, B):
                    stacked[f"{one.parameter}.{name}"][slot].zero_()
            if adapter is None:
                return
            with adapter.weights.reading() as read:
                for one in places:
                    a, b = (stacked[f"{one.parameter}.{name}"][slot] for name in (A, B))
                    _write(read, adapter, one, lora.rank, a, b)

    return write


def _write(
    read: Read, adapter: Adapter, place: Projection, rank: int, a: torch.Tensor, b: torch.Tensor
) -> None:
    """Both matrices of a projection: each part has rows of its own; the scale goes into b."""
    start = 0
    for part, (module, width) in enumerate(zip(place.modules, place.widths, strict=True)):
        pair = adapter.pairs.get(module)
        if pair is not None:
            first = part * rank
            a[first : first + pair.rank] = _tensor(read, pair.a)
            b[start : start + width, : pair.rank] = _tensor(read, pair.b).float() * pair.scale
        start += width


def _tensor(read: Read, info: TensorInfo) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, info.dtype)
    return torch.frombuffer(read(info), dtype=dtype).view(info.shape)
