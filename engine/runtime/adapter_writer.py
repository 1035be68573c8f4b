"""Write an adapter's matrices into a slot of the stacked weights, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.lora.adapter import Adapter
from vcc.engine.models.lora.spec import A, B, LoraSpec, projections, shapes_of
from vcc.engine.models.mapped_file import MappedFiles
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
                a, b = (stacked[f"{one.parameter}.{name}"][slot] for name in (A, B))
                a.zero_()
                b.zero_()
                if adapter is not None:
                    _write(adapter, one.modules, one.widths, lora.rank, a, b)

    return write


def _write(
    adapter: Adapter,
    modules: tuple[str, ...],
    widths: tuple[int, ...],
    rank: int,
    a: torch.Tensor,
    b: torch.Tensor,
) -> None:
    """Both matrices of a projection: each part has rows of its own; the scale goes into b."""
    files, start = MappedFiles(), 0
    for part, (module, width) in enumerate(zip(modules, widths, strict=True)):
        pair = adapter.pairs.get(module)
        if pair is not None:
            first = part * rank
            a[first : first + pair.rank] = files.view(pair.a)
            b[start : start + width, : pair.rank] = files.view(pair.b).float() * pair.scale
        start += width
