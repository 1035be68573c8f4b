"""TensorInfo: what a checkpoint's header says of one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vcc.cache.errors import ModelError

Shape: TypeAlias = tuple[int, ...]

SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""Bytes an element, by dtype; names are torch's."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint.

    Attributes:
        dtype: torch's name of the dtype, such as `bfloat16`.
        shape: sizes, outermost first.
        file: the safetensors file; None where a build uses no checkpoint data.
        start, end: first byte and first byte after, from the start of the file.
    """

    dtype: str
    shape: Shape
    file: Path | None = None
    start: int = 0
    end: int = 0

    def stored(self) -> Path:
        """The file that holds its data.

        Raises:
            ModelError: the model was opened without weights.
        """
        if self.file is None:
            raise ModelError(
                "a tensor of this model has no data",
                "it was opened without weights",
                "--weights PATH says where they are",
            )
        return self.file
