"""The plan of a weight upload: files, and a list of copies from them into the WEIGHTS region.

A copy, as csrc/player/weights.h reads it (little endian, 64 bytes):

    copy := file:u32 from:u16 to:u16 transposed:u32 more:u32
            source:u64 destination:u64 rows:u64 columns:u64
            source_stride:u64 destination_stride:u64

`from` and `to` are dtype codes, `rows` and `columns` count elements of the source rectangle,
everything else is bytes: `source` in the file, `destination` in the region, strides from one row
to the next. A transposed copy writes `columns` rows of `rows` elements; `more` rectangles lie
behind its first without gaps, in the file and in the region, and each is turned by itself. `file`
CONSTANTS means the block of constants of the artifact.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.errors import IntegrityError, ModelError
from vcc.engine.models.expressions import Binding
from vcc.engine.models.tensor_info import SIZES, Shape, TensorInfo
from vcc.engine.runtime.player.copies import Block, Evaluator

CONSTANTS = 0xFFFFFFFF
"""The number of the file that is no file."""

CODES: Mapping[str, int] = {
    "float64": 0,
    "float32": 1,
    "float16": 2,
    "bfloat16": 3,
    "float8_e4m3fn": 4,
    "float8_e5m2": 5,
    "int64": 6,
    "int32": 7,
    "int16": 8,
    "int8": 9,
    "uint8": 10,
    "bool": 11,
}
"""Dtype codes of node tables."""

CONVERTED = frozenset({"float64", "float32", "float16", "bfloat16"})
"""Dtypes that are converted into each other on the way."""

_COPY = struct.Struct("<IHHII6Q")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Home:
    """A place in the WEIGHTS region.

    Attributes:
        name: the parameter, or the constant's blob without `constant/`.
        dtype: torch's name of the dtype.
        shape: sizes, outermost first.
        offset: first byte in the region.
        constant: whether it comes from the artifact instead of the checkpoint.
    """

    name: str
    dtype: str
    shape: Shape
    offset: int
    constant: bool = False

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """What is copied.

    Attributes:
        files: checkpoint files by number.
        least: bytes that each file must have at least.
        copies: packed copies.
        count: how many there are.
        constants: the constants, one after another.
        bytes: bytes that reach the device.
    """

    files: tuple[Path, ...]
    least: tuple[int, ...]
    copies: bytes
    count: int
    constants: bytes
    bytes: int


@dataclass(slots=True)
class _Making:
    evaluator: Evaluator
    constants: Mapping[str, bytes]
    files: dict[Path, int] = field(default_factory=dict)
    least: dict[Path, int] = field(default_factory=dict)
    block: bytearray = field(default_factory=bytearray)
    problems: list[str] = field(default_factory=list)

    def copies(self, homes: Sequence[Home]) -> Iterator[bytes]:
        done: set[tuple[str, int]] = set()
        for home in homes:
            owner = home.name if home.constant else self.evaluator.owner(home.name)
            if (owner, home.offset) not in done:
                done.add((owner, home.offset))
                yield from self.constant(home) if home.constant else self.weight(home, owner)

    def constant(self, home: Home) -> Iterator[bytes]:
        data = self.constants.get(home.name)
        if data is None or len(data) != home.bytes:
            found = "missing" if data is None else f"{len(data)} bytes"
            raise IntegrityError(
                f"constant {home.name} is {found}", f"the table takes {home.bytes} bytes"
            )
        code, at = CODES[home.dtype], len(self.block)
        self.block += data
        count = math.prod(home.shape)
        yield _COPY.pack(CONSTANTS, code, code, 0, 0, at, home.offset, 1, count, 0, 0)

    def weight(self, home: Home, owner: str) -> Iterator[bytes]:
        try:
            value = self.evaluator.value(self.evaluator.bindings[owner])
        except ModelError as error:
            self.problems.append(str(error))
            return
        if value.shape != home.shape:
            found, wanted = list(value.shape), list(home.shape)
            self.problems.append(f"{home.name} is {found}, the artifact takes {wanted}")
            return
        for block in value.blocks:
            if _convertible(block.tensor.dtype, home.dtype):
                yield self.copy(home, block)
            else:
                stored = block.tensor.dtype
                self.problems.append(f"{home.name} is {stored}, the artifact takes {home.dtype}")
                return

    def copy(self, home: Home, block: Block) -> bytes:
        info, wide, narrow = block.tensor, SIZES[block.tensor.dtype], SIZES[home.dtype]
        transposed = block.columns > 1 and block.column_stride != 1
        stride = block.column_stride if transposed else block.row_stride
        return _COPY.pack(
            self.file(info),
            CODES[info.dtype],
            CODES[home.dtype],
            transposed,
            block.planes - 1,
            info.start + block.source * wide,
            home.offset + block.place * narrow,
            block.rows,
            block.columns,
            block.source_stride * wide,
            stride * narrow,
        )

    def file(self, info: TensorInfo) -> int:
        file = info.stored()
        self.least[file] = max(self.least.get(file, 0), info.end)
        return self.files.setdefault(file, len(self.files))


def plan_weights(
    homes: Sequence[Home],
    bindings: Mapping[str, Binding],
    tensors: Mapping[str, TensorInfo],
    constants: Mapping[str, bytes],
) -> WeightPlan:
    """Work out every copy; no tensor data is read.

    Args:
        homes: what the table wants, and where.
        bindings: expressions by parameter.
        tensors: the checkpoint's tensors by name.
        constants: bytes by constant.

    Raises:
        ModelError: the checkpoint is not what the artifact was built for: the first five
            differences in names, shapes and dtypes.
        IntegrityError: a constant of the artifact is missing or has another size.
    """
    making = _Making(Evaluator(bindings, tensors), constants)
    copies = list(making.copies(homes))
    if making.problems:
        more = len(making.problems) - _SHOWN
        shown = "; ".join(making.problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise ModelError(
            "the weights are not what the artifact was built for",
            shown,
            "give the checkpoint that was compiled, or compile this one",
        )
    return WeightPlan(
        files=tuple(making.files),
        least=tuple(making.least[file] for file in making.files),
        copies=b"".join(copies),
        count=len(copies),
        constants=bytes(making.block),
        bytes=sum({home.offset: home.bytes for home in homes}.values()),
    )


def _convertible(stored: str, wanted: str) -> bool:
    return stored == wanted or {stored, wanted} <= CONVERTED
