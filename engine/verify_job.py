"""What `vcc verify --interpret` hands to its child and gets back, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vcc.engine.models.lora.spec import LoraSpec

JOB, RESULT, CONTENT = "job.json", "result.json", "content"
"""Names in the folder that parent and child share; the content is a build's result in fp32."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to check.

    Attributes:
        config: the decoder's `config.json`.
        max_tokens, max_seqs, block_size, blocks_per_seq: limits of its step.
        ops: custom ops that are switched on.
        compilation: the resolved compilation config, as JSON: passes and cuts.
        target: what the table was made for.
        length: tokens of the longest sequence.
        asked: token counts to run beside the usual steps.
        loras, lora_rank, lora_targets: of adapters; 0 where there are none.
    """

    config: Mapping[str, Any]
    max_tokens: int
    max_seqs: int
    block_size: int
    blocks_per_seq: int
    ops: tuple[str, ...]
    compilation: str
    target: str
    length: int
    asked: tuple[int, ...] = ()
    loras: int = 0
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()

    @property
    def lora(self) -> LoraSpec | None:
        """What is declared of adapters."""
        made = LoraSpec(self.loras, self.lora_rank, self.lora_targets)
        return made if self.loras else None

    def write(self, folder: Path) -> None:
        """Leave it in a folder."""
        (folder / JOB).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Job:
        """Read what `write` left."""
        fields = json.loads((folder / JOB).read_text(encoding="utf-8"))
        lists = ("ops", "asked", "lora_targets")
        return cls(**fields | {name: tuple(fields[name]) for name in lists})


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step that agrees.

    Attributes:
        name: what the step is.
        graph: nodes of `decode` or `mixed` steps; `loop` with the loop's head and tail.
        tokens, seqs: T and B.
        segments: how many were compared.
        unmatched: values within them that are not: kernels of custom ops are traced otherwise.
        error: largest error as a share of the largest reference value.
    """

    name: str
    graph: str
    tokens: int
    seqs: int
    segments: int
    unmatched: int
    error: float


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first value that differs, and where it was made; errors are absolute."""

    step: str
    graph: str
    segment: int
    name: str
    value: str
    error: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """All steps that agree, up to the first that does not."""

    steps: tuple[StepResult, ...]
    mismatch: Mismatch | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Outcome:
        """Read what `as_dict` gave."""
        steps = tuple(StepResult(**one) for one in found["steps"])
        mismatch = found["mismatch"]
        return cls(steps, None if mismatch is None else Mismatch(**mismatch))
