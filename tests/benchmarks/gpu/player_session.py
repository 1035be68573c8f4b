"""A booted player for the GPU benchmarks' own processes, which import no torch.

The benchmarks look below the runner: at the player's handle (csrc/player by its C ABI) and at the
layout of its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import MODE, SIZES, TARGET, models_folder

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.monitor import Ledger
from vcc.engine.request import settle
from vcc.engine.runtime.player.handle import (
    DecodeCall,
    Inputs,
    Mode,
    Parts,
    PlayerHandle,
    Read,
    Shape,
)
from vcc.engine.runtime.player.layout import Layout
from vcc.engine.session import Session, open_session


def asked_session(
    model: Path, ledger: Ledger | None = None, mode: str = MODE, config: str | None = None
) -> Session:
    """The session of a benchmark's artifact; a miss is an error."""
    asked = ModelOptions(str(model), target=TARGET, mode=mode, dtype="bf16", config=config, **SIZES)
    opened = Store.open(models_folder() / "store")
    settled = settle(build_request(asked))
    return Session(settled, opened, "off", require_warm=True, ledger=ledger or Ledger())


@dataclass(frozen=True)
class Playing:
    """A runner, and what lies below it."""

    runner: Any
    handle: PlayerHandle
    layout: Layout
    ledger: Ledger

    @classmethod
    def of(
        cls, model: Path, lengths: list[int], mode: str = MODE, config: str | None = None
    ) -> Playing:
        """Boot the artifact of a model; a miss is an error.

        Args:
            model: the checkpoint.
            lengths: tokens of the sequences to come.
            mode: of the graphs.
            config: a compilation config as JSON, as the artifact was built with.
        """
        ledger = Ledger()
        session = asked_session(model, ledger, mode, config)
        runner = open_session(session, lengths).booted.runner
        return cls(runner, runner.player, runner._parts.layout, ledger)

    def fill(self, seqs: int, tokens: int, past: int) -> int:
        """An input slot with `seqs` sequences of `tokens` new tokens each, after `past` others."""
        slot, size = self.handle.slot(), self.runner.limits.block_size
        width = self.runner.limits.max_blocks_per_seq
        per = -(-(past + tokens + 512) // size)
        table = np.zeros((seqs, width), np.int32)
        table[:, :per] = np.arange(seqs * per, dtype=np.int32).reshape(seqs, per)[:, :width]
        places = np.tile(np.arange(past, past + tokens, dtype=np.int32), seqs)
        owners = np.repeat(np.arange(seqs), tokens)
        slots = table[owners, places // size] * size + places % size
        starts = np.arange(seqs + 1, dtype=np.int32) * tokens
        values = {
            "input_ids": (np.arange(seqs * tokens) * 7 + 11) % 2048,
            "positions": places,
            "slot_mapping": slots,
            "block_table": table.ravel(),
            "seq_lens": np.full(seqs, past + tokens),
            "query_start": starts,
            "logits_index": starts[1:] - 1,
            "temperature": np.zeros(seqs),
            "top_p": np.ones(seqs),
            "top_k": np.zeros(seqs),
            "seed": np.zeros(seqs),
            "request": np.arange(seqs),
            "step": np.zeros(seqs),
            "active": np.ones(seqs),
            "token": np.full(seqs, 5),
        }
        for name, value in values.items():
            if name in self.layout.tensors:
                self.layout.array(slot, name)[: len(value)] = value
        return slot

    def decode(self, seqs: int, past: int, steps: int, ahead: int = 1) -> tuple[int, np.ndarray]:
        """The device's own loop: steps done, and nanoseconds of each host gap."""
        parts = Parts.UNIFORM | Parts.SAMPLE | Parts.ADVANCE
        call = DecodeCall(
            rows=seqs,
            steps=min(steps, self.layout.ring[1]),
            slot=self.fill(seqs, 1, past),
            changed=None,
            stops=np.zeros(0, np.int32),
            stop_start=np.zeros(seqs + 1, np.int32),
            finish=seqs + 1,
            ahead=ahead,
            control=np.zeros(2, np.int64),
            gaps=np.zeros(steps, np.int64),
        )
        done = self.handle.decode(Shape(Mode.FULL, seqs, seqs, parts), call)
        return done, call.gaps[:done]

    def prefill(self, tokens: int, slot: int) -> None:
        """One step of one sequence by plain launches, waited for."""
        shape = Shape(Mode.PLAIN, tokens, 1, Parts.NONE)
        self.handle.step(shape, 1, slot, Inputs.STEP, Read.LOGITS)
