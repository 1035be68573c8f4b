"""A step runner without a model: its logits depend on what it reads through the paged KV."""

from __future__ import annotations

import hashlib

import numpy as np

from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.batch import StepBatch, StepLimits
from vcc.engine.runtime.descriptors import BatchDescriptor, Dispatch
from vcc.engine.runtime.graph_stat import GraphStat
from vcc.engine.runtime.wrapper import CaptureGate


def limits(**changes: int) -> StepLimits:
    """Small limits, with changes."""
    base = {
        "max_tokens": 16,
        "max_seqs": 4,
        "block_size": 4,
        "num_blocks": 64,
        "max_blocks_per_seq": 16,
        "max_model_len": 64,
        "vocab": 50,
    }
    return StepLimits(**(base | changes))


def logits_of(history: list[int], vocab: int) -> np.ndarray:
    """The fake model: float32 [vocab], a pure function of all tokens so far."""
    digest = hashlib.sha256(np.asarray(history, dtype=np.int32).tobytes()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    return generator.standard_normal(vocab).astype(np.float32)


class FakeRunner:
    """Keeps token ids in KV slots; a wrong slot, table or length gives wrong logits."""

    def __init__(self, step_limits: StepLimits) -> None:
        self.limits = step_limits
        self.kv = np.full(step_limits.num_blocks * step_limits.block_size, -1, dtype=np.int32)
        self.batches: list[tuple[int, int, bool]] = []
        self.stat = GraphStat()
        self.mode, self.gate = GraphMode.NONE, CaptureGate()

    def step(self, batch: StepBatch) -> np.ndarray:
        self.batches.append((batch.tokens, batch.seqs, batch.uniform))
        plain = Dispatch(GraphMode.NONE, BatchDescriptor(batch.tokens), "no graphs here")
        self.stat.record(batch.tokens, plain, batch.seqs)
        self.kv[batch.slot_mapping] = batch.input_ids
        rows = [self._row(batch, index) for index in range(batch.seqs)]
        return np.stack(rows)

    def _row(self, batch: StepBatch, index: int) -> np.ndarray:
        last = batch.logits_index[index]
        assert batch.query_start[index] <= last < batch.query_start[index + 1]
        assert batch.positions[last] == batch.seq_lens[index] - 1
        at = np.arange(batch.seq_lens[index])
        size = self.limits.block_size
        slots = batch.block_table[index][at // size] * size + at % size
        return self.logits(self.kv[slots].tolist())

    def logits(self, history: list[int]) -> np.ndarray:
        """Of a sequence with these tokens so far."""
        return logits_of(history, self.limits.vocab)


class BrokenRunner(FakeRunner):
    """A history that holds token 7 has NaN among its logits, as a damaged row of weights gives."""

    def logits(self, history: list[int]) -> np.ndarray:
        row = super().logits(history)
        if 7 in history:
            row[::3] = np.nan
        return row
