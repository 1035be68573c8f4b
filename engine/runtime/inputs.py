"""Write a batch into the fixed input memory of a step, with padding, after checking it once."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vcc.cache.errors import UsageError
from vcc.engine.runtime.batch import StepBatch, StepLimits
from vcc.engine.runtime.no_adapters import no_adapters

PER_TOKEN = (("input_ids", 0), ("positions", 0), ("slot_mapping", -1))
"""Inputs [T] and what padding rows hold: slot -1 is written nowhere."""

LORA = ("lora_slot", -1)
"""The input [T] of a step with adapters; padding rows have none."""

PER_SEQUENCE = (("seq_lens", 0), ("logits_index", 0))
"""Inputs [B] and what padding sequences hold: no rows, row 0 for the unused logits."""


NOBODY = np.zeros(0, dtype=np.int32)


class InputMemory(Protocol):
    """Where the inputs of a step lie."""

    def array(self, name: str) -> npt.NDArray[Any]:
        """An input's memory at its largest size, flat, for the host to write."""


class StepInputs:
    """The seven small inputs of the step interface as arrays over the step's memory."""

    def __init__(self, memory: InputMemory, limits: StepLimits) -> None:
        self._limits = limits
        adapted = (LORA,) if limits.max_loras else ()
        names = [name for name, _ in (*PER_TOKEN, *PER_SEQUENCE, *adapted)]
        self._flat = {name: memory.array(name) for name in (*names, "query_start")}
        table = memory.array("block_table")
        self._table = table.reshape(-1, limits.max_blocks_per_seq)

    def write(self, batch: StepBatch, tokens: int, seqs: int) -> None:
        """Copy a batch, padded to `tokens` rows and `seqs` sequences.

        Raises:
            UsageError: an index in the batch is outside the model, the cache or the step.
        """
        check_batch(batch, self._limits)
        for name, padding in PER_TOKEN:
            _fill(self._flat[name], getattr(batch, name), tokens, padding)
        for name, padding in PER_SEQUENCE:
            _fill(self._flat[name], getattr(batch, name), seqs, padding)
        if self._limits.max_loras:
            slots = batch.lora_slot if batch.lora_slot is not None else NOBODY
            _fill(self._flat[LORA[0]], slots, tokens, LORA[1])
        _fill(self._flat["query_start"], batch.query_start, seqs + 1, batch.tokens)
        self._table[: batch.seqs] = batch.block_table
        self._table[batch.seqs : seqs] = 0

    def clear(self, tokens: int, seqs: int) -> None:
        """A step of padding alone: rows that write no slot, sequences that have no rows."""
        for name, padding in PER_TOKEN:
            self._flat[name][:tokens] = padding
        if self._limits.max_loras:
            self._flat[LORA[0]][:tokens] = LORA[1]
        for name, padding in PER_SEQUENCE:
            self._flat[name][:seqs] = padding
        self._flat["query_start"][: seqs + 1] = 0
        self._table[:seqs] = 0


def _fill(home: npt.NDArray[Any], values: npt.NDArray[Any], upto: int, padding: int) -> None:
    home[: len(values)] = values
    home[len(values) : upto] = padding


def check_batch(batch: StepBatch, limits: StepLimits) -> None:
    """Refuse what compiled code would read out of bounds.

    Raises:
        UsageError: with the field and the values it may have.
    """
    if not 0 < batch.tokens <= limits.max_tokens or not 0 < batch.seqs <= limits.max_seqs:
        raise UsageError(
            f"a step of {batch.tokens} tokens of {batch.seqs} sequences cannot run",
            f"it holds 1 to {limits.max_tokens} tokens of 1 to {limits.max_seqs} sequences",
        )
    _check_shapes(batch, limits)
    slots = limits.num_blocks * limits.block_size
    for name, low, high in (
        ("input_ids", 0, limits.vocab),
        ("positions", 0, limits.max_model_len),
        ("slot_mapping", -1, slots),
        ("block_table", 0, limits.num_blocks),
        ("seq_lens", 0, limits.max_blocks_per_seq * limits.block_size + 1),
        ("query_start", 0, batch.tokens + 1),
        ("logits_index", 0, batch.tokens),
    ):
        _check_range(name, getattr(batch, name), low, high)
    _check_rows(batch)
    _check_loras(batch, limits)


def _check_shapes(batch: StepBatch, limits: StepLimits) -> None:
    tokens, seqs = (batch.tokens,), (batch.seqs,)
    for name, shape in (
        ("input_ids", tokens),
        ("positions", tokens),
        ("slot_mapping", tokens),
        ("block_table", (*seqs, limits.max_blocks_per_seq)),
        ("seq_lens", seqs),
        ("query_start", (batch.seqs + 1,)),
        ("logits_index", seqs),
    ):
        found = getattr(batch, name).shape
        if found != shape:
            raise UsageError(f"{name} has shape {list(found)}", f"it must be {list(shape)}")


def _check_loras(batch: StepBatch, limits: StepLimits) -> None:
    """Slots of adapters, where there are any."""
    if batch.lora_slot is None:
        return
    if batch.lora_slot.shape != (batch.tokens,):
        raise UsageError(
            f"lora_slot has shape {list(batch.lora_slot.shape)}", f"it must be {[batch.tokens]}"
        )
    if not limits.max_loras and batch.loras:
        raise no_adapters()
    _check_range("lora_slot", batch.lora_slot, LORA[1], max(limits.max_loras, 1))


def _check_rows(batch: StepBatch) -> None:
    """Every row belongs to one sequence, and no sequence has more rows than tokens."""
    starts, rows = batch.query_start, np.diff(batch.query_start)
    if int(starts[0]) != 0 or int(starts[-1]) != batch.tokens or int(rows.min()) < 1:
        raise UsageError(
            "query_start must rise from 0 to the number of tokens",
            f"it is {starts[:9].tolist()} for {batch.tokens} tokens",
        )
    if np.any(batch.seq_lens < rows):
        raise UsageError(
            "a sequence is shorter than its rows of this step",
            f"seq_lens {batch.seq_lens[:9].tolist()}, rows {rows[:9].tolist()}",
        )
    if batch.uniform and batch.tokens != batch.seqs:
        raise UsageError(
            "the batch is not uniform",
            f"{batch.tokens} tokens of {batch.seqs} sequences are not one token each",
        )


def _check_range(name: str, values: npt.NDArray[Any], low: int, high: int) -> None:
    if values.dtype != np.int32:
        raise UsageError(f"{name} must be int32", f"it is {values.dtype}")
    if values.size and (int(values.min()) < low or int(values.max()) >= high):
        raise UsageError(
            f"{name} is out of range",
            f"values {int(values.min())} to {int(values.max())}, allowed {low} to {high - 1}",
        )
