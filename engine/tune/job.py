"""A recording as a job of a process of its own: what it is asked, and what it answers, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.shapes import GemmShape, Refused

HELPER = "vcc.engine.tune.helper"
"""The module that does a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """Record `shapes` on device `ordinal` into the store at `root`.

    With `again`, what is stored already is recorded anew.
    """

    root: Path
    shapes: tuple[GemmShape, ...]
    ordinal: int = 0
    again: bool = False

    def text(self) -> str:
        """As JSON."""
        rows = [asdict(shape) for shape in self.shapes]
        fields = {"root": str(self.root), "ordinal": self.ordinal, "again": self.again}
        return json.dumps(fields | {"shapes": rows})

    @classmethod
    def parse(cls, text: str) -> Job:
        """The inverse of `text`."""
        found = json.loads(text)
        shapes = tuple(GemmShape(**row) for row in found["shapes"])
        return cls(Path(found["root"]), shapes, int(found["ordinal"]), bool(found["again"]))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a job.

    Attributes:
        gpu, cublaslt: the device model and the version of the library.
        recorded, kept: products recorded now, and stored before.
        refused: products that cannot be stored.
        self_test: None when nothing was recorded.
        seconds: of recording alone.
        bytes: of node tables and cubins.
    """

    gpu: Gpu
    cublaslt: int
    recorded: int
    kept: int
    refused: tuple[Refused, ...]
    self_test: SelfTest | None
    seconds: float
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON-like values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> Answer:
        """The inverse of `as_dict`."""
        test = found["self_test"]
        return cls(
            gpu=Gpu(**found["gpu"]),
            cublaslt=found["cublaslt"],
            recorded=found["recorded"],
            kept=found["kept"],
            refused=_refused(found["refused"]),
            self_test=None if test is None else SelfTest(**test),
            seconds=found["seconds"],
            bytes=found["bytes"],
        )


def _refused(rows: Sequence[Mapping[str, Any]]) -> tuple[Refused, ...]:
    return tuple(Refused(GemmShape(**row["shape"]), row["why"]) for row in rows)
