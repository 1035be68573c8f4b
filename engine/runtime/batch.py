"""StepBatch: the integers of one model step, and the builder that reuses their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from vcc.engine.runtime.descriptors import count_loras
from vcc.engine.runtime.kv import BlockTable, Int32Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step and the KV cache of a loaded artifact can hold.

    Attributes:
        max_tokens: rows of one step (T).
        max_seqs: sequences of one step (B).
        block_size: tokens a KV block holds.
        num_blocks: blocks of the KV cache.
        max_blocks_per_seq: width of the block table (N).
        max_model_len: tokens of one sequence, prompt and answer.
        vocab: width of the logits (V).
        max_loras: adapters of one step; 0 where the code has none.
    """

    max_tokens: int
    max_seqs: int
    block_size: int
    num_blocks: int
    max_blocks_per_seq: int
    max_model_len: int
    vocab: int
    max_loras: int = 0

    @property
    def context(self) -> int:
        """Longest sequence that fits the model, the table and the cache when alone."""
        blocks = min(self.num_blocks, self.max_blocks_per_seq)
        return min(self.max_model_len, blocks * self.block_size)


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step: T flattened tokens of B sequences; all arrays int32 on the CPU, unpadded.

    The arrays are views of the builder's buffers and hold until its next build.

    Attributes:
        input_ids: [T] token ids.
        positions: [T] position of each token in its sequence.
        slot_mapping: [T] KV slot each token is written to.
        block_table: [B, N] block ids of each sequence, zeros behind.
        seq_lens: [B] tokens of each sequence, this step's included.
        query_start: [B+1] first row of each sequence in T.
        logits_index: [B] row whose logits are wanted: the last of each sequence.
        uniform: every sequence has exactly one token (pure decode).
        lora_slot: [T] slot of each row's adapter, -1 without one; None where no row has one.
    """

    input_ids: Int32Array
    positions: Int32Array
    slot_mapping: Int32Array
    block_table: Int32Array
    seq_lens: Int32Array
    query_start: Int32Array
    logits_index: Int32Array
    uniform: bool
    lora_slot: Int32Array | None = None

    @property
    def loras(self) -> int:
        """Adapters of the step, see `count_loras`."""
        return 0 if self.lora_slot is None else count_loras(self.lora_slot.tolist())

    @property
    def tokens(self) -> int:
        """T, unpadded."""
        return len(self.input_ids)

    @property
    def seqs(self) -> int:
        """B, unpadded."""
        return len(self.seq_lens)


class StepRunner(Protocol):
    """What runs a step: a loaded artifact, or a fake in tests."""

    @property
    def limits(self) -> StepLimits:
        """What one step may hold."""

    def step(self, batch: StepBatch) -> torch.Tensor | npt.NDArray[np.floating]:
        """Run one step; logits [B, V] in the model's dtype, valid until the next step."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one sequence in a step.

    Attributes:
        tokens: int32 ids of the rows, [count].
        start: position of the first row.
        table: the sequence's blocks, long enough for start + count tokens.
        slot: of its adapter; -1 without one.
    """

    tokens: Int32Array
    start: int
    table: BlockTable
    slot: int = -1


class BatchBuilder:
    """Builds step batches in buffers allocated once."""

    def __init__(self, limits: StepLimits) -> None:
        tokens, seqs = limits.max_tokens, limits.max_seqs
        self._limits = limits
        self._input_ids, self._positions, self._slots = np.zeros((3, tokens), dtype=np.int32)
        self._loras = np.zeros(tokens, dtype=np.int32)
        self._table = np.zeros((seqs, limits.max_blocks_per_seq), dtype=np.int32)
        self._seq_lens, self._logits_index = np.zeros((2, seqs), dtype=np.int32)
        self._query_start = np.zeros(seqs + 1, dtype=np.int32)

    def build(self, chunks: Sequence[Chunk]) -> StepBatch:
        """The batch of these chunks, in their order.

        Raises:
            ValueError: more rows or sequences than the limits allow.
        """
        self._check(chunks)
        row = 0
        for index, chunk in enumerate(chunks):
            row = self._place(index, row, chunk)
        adapted = any(chunk.slot >= 0 for chunk in chunks)
        return self._views(row, len(chunks), self._loras[:row] if adapted else None)

    def _check(self, chunks: Sequence[Chunk]) -> None:
        rows = sum(len(chunk.tokens) for chunk in chunks)
        if rows > self._limits.max_tokens or len(chunks) > self._limits.max_seqs:
            raise ValueError(
                f"{rows} tokens of {len(chunks)} sequences exceed a step of "
                f"{self._limits.max_tokens} tokens and {self._limits.max_seqs} sequences"
            )

    def _place(self, index: int, row: int, chunk: Chunk) -> int:
        end, stop = row + len(chunk.tokens), chunk.start + len(chunk.tokens)
        positions = self._positions[row:end]
        positions[:] = np.arange(chunk.start, stop, dtype=np.int32)
        self._input_ids[row:end] = chunk.tokens
        self._slots[row:end] = chunk.table.slots(positions)
        self._loras[row:end] = chunk.slot
        self._table[index] = chunk.table.row
        self._seq_lens[index] = stop
        self._query_start[index + 1] = end
        self._logits_index[index] = end - 1
        return end

    def _views(self, rows: int, seqs: int, loras: Int32Array | None) -> StepBatch:
        return StepBatch(
            input_ids=self._input_ids[:rows],
            positions=self._positions[:rows],
            slot_mapping=self._slots[:rows],
            block_table=self._table[:seqs],
            seq_lens=self._seq_lens[:seqs],
            query_start=self._query_start[: seqs + 1],
            logits_index=self._logits_index[:seqs],
            uniform=rows == seqs,
            lora_slot=loras,
        )


def as_float32(logits: torch.Tensor | npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Logits as a float32 array, without a copy where they are one already."""
    if isinstance(logits, np.ndarray):
        return logits.astype(np.float32, copy=False)
    values: npt.NDArray[np.float32] = logits.detach().float().numpy()
    return values
