"""The decoder with adapters: what each row's adapter adds to the results of its projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vcc.engine.models.decoder import Decoder
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.lora.spec import A, B, LoraSpec, projections
from vcc.engine.ops.choice import OpChoice


@dataclass(slots=True)
class _Rows:
    """The slots of the step that is being computed; empty between steps."""

    slots: Tensor


class LoraDecoder(Decoder):
    """A `Decoder` whose step has one more input: the slot of each row's adapter.

    Args:
        spec, dtype, ops: as of `Decoder`.
        lora: slots, rank and the projections that have adapters.
    """

    def __init__(
        self, spec: DecoderSpec, dtype: torch.dtype, ops: OpChoice, lora: LoraSpec
    ) -> None:
        super().__init__(spec, dtype, ops)
        self._rows = _Rows(torch.empty(0, dtype=torch.int32))
        kernels = _kernels(on_gpu=ops.platform != "cpu")
        for one in projections(spec, lora):
            module = self.get_submodule(one.parameter)
            for name, shape in one.shapes(lora).items():
                weight = nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)
                module.register_parameter(name.rpartition(".")[2], weight)
            # A hook, as an adapter adds to a result whatever computes it.
            module.register_forward_hook(_adds(kernels, self._rows, one.widths))

    def forward(  # type: ignore[override]  # a step with one more input
        self,
        input_ids: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        query_start: Tensor,
        logits_index: Tensor,
        lora_slot: Tensor,
        kv_caches: Sequence[Tensor],
    ) -> Tensor:
        """One step; `lora_slot` is int32 [T], -1 for a row without an adapter."""
        self._rows.slots = lora_slot
        indices = (block_table, seq_lens, query_start, logits_index)
        return super().forward(input_ids, positions, slot_mapping, *indices, kv_caches)


def decoder_with(
    spec: DecoderSpec, dtype: torch.dtype, ops: OpChoice, lora: LoraSpec | None
) -> Decoder:
    """The decoder, with adapters where they are declared."""
    return Decoder(spec, dtype, ops) if lora is None else LoraDecoder(spec, dtype, ops, lora)


def empty_adapted(
    spec: DecoderSpec, dtype: torch.dtype, ops: OpChoice, lora: LoraSpec
) -> LoraDecoder:
    """One without memory for its weights, which `assign` gives it."""
    with torch.device("meta"):
        return LoraDecoder(spec, dtype, ops, lora)


def _adds(
    kernels: Any, rows: _Rows, widths: Sequence[int]
) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    def hook(module: nn.Module, given: tuple[Tensor, ...], y: Tensor) -> Tensor:
        low = kernels.lora_shrink(given[0], getattr(module, A), rows.slots)
        added: Tensor = kernels.lora_expand(y, low, getattr(module, B), rows.slots, list(widths))
        return added

    return hook


def _kernels(*, on_gpu: bool) -> Any:
    """On a GPU the Triton kernels, each a launch of the piece; Triton is imported by a build."""
    if not on_gpu:
        return torch.ops.vcc
    import vcc.engine.ops.triton.wrapped_lora as kernels

    return kernels
