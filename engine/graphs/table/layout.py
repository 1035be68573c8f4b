"""Numbers of the node table's binary form, version 2; little endian.

::

    file    = header entry*16 section*16
    header  = "vcctable" u32:version u32:flags u64:size u32:sections u32:0 u64:0
    entry   = u32:kind u32:record_size u64:offset u64:count
    section = record*count                 starts at a multiple of 8, zeros between sections

Every record's fields stand below in order; ``docs/format.md`` says what they mean. The same sizes
and offsets are asserted in ``csrc/table/format.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

MAGIC = b"vcctable"
VERSION = 2
"""No other is read: tables of version 1 can have too little memory for the sums of split keys."""

ALIGNMENT = 8
HEADER = Struct("<8sIIQIIQ")
ENTRY = Struct("<IIQQ")


class Section(IntEnum):
    """The sections in the order of the file."""

    STRINGS = 0
    SYMBOLS = 1
    EXPRS = 2
    REGIONS = 3
    LISTS = 4
    TENSORS = 5
    CUBINS = 6
    KERNELS = 7
    ATTRIBUTES = 8
    NODES = 9
    PARAMS = 10
    GEMMS = 11
    VARIANTS = 12
    SEGMENTS = 13
    EDGES = 14
    BYTES = 15


@dataclass(frozen=True, slots=True)
class Shape:
    """The record of a section, and the most records that it may have."""

    record: Struct
    most: int


MOST_BYTES = 64 << 20
"""Size of a whole file."""

SHAPES: Mapping[Section, Shape] = {
    Section.STRINGS: Shape(Struct("<B"), MOST_BYTES),
    Section.SYMBOLS: Shape(Struct("<IIqq"), 16),
    Section.EXPRS: Shape(Struct("<B3sIq"), 1_000_000),
    Section.REGIONS: Shape(Struct("<IIII"), 256),
    Section.LISTS: Shape(Struct("<I"), 1_000_000),
    Section.TENSORS: Shape(Struct("<IIIIBBHIIII"), 100_000),
    Section.CUBINS: Shape(Struct("<32sQ"), 100_000),
    Section.KERNELS: Shape(Struct("<IIIIIIIIIIiI"), 100_000),
    Section.ATTRIBUTES: Shape(Struct("<II64s"), 1_000_000),
    Section.NODES: Shape(Struct("<BBHIIIIII"), 1_000_000),
    Section.PARAMS: Shape(Struct("<BBHIIIII"), 3_000_000),
    Section.GEMMS: Shape(Struct("<IIIBBBB"), 100_000),
    Section.VARIANTS: Shape(Struct("<IIBBBBIIIIII"), 100_000),
    Section.SEGMENTS: Shape(Struct("<B3sIIII"), 100_000),
    Section.EDGES: Shape(Struct("<IIBBBB"), 6_000_000),
    Section.BYTES: Shape(Struct("<B"), MOST_BYTES),
}


class Op(IntEnum):
    """What an expression record does with its operands `a` and `b`."""

    CONST = 0
    SYMBOL = 1
    ADD = 2
    MUL = 3
    FLOORDIV = 4
    MOD = 5
    MIN = 6
    MAX = 7
    CEILDIV = 8


OPS: Mapping[str, Op] = {
    "+": Op.ADD,
    "*": Op.MUL,
    "//": Op.FLOORDIV,
    "%": Op.MOD,
    "min": Op.MIN,
    "max": Op.MAX,
    "ceildiv": Op.CEILDIV,
}
"""Operators of `engine.graphs.expr` by their code."""

DTYPES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of an element; a dtype's code is its position here."""

DTYPE_NAMES = tuple(DTYPES)

FP8 = "float8_e4m3fn"
"""What scaled products multiply."""

OUTS = ("float32", "float16", "bfloat16")
"""What they give."""

SCALES = ("", "tensor", "rows", "blocks", "mixed")
"""Scales of a product by their code: none; one number each; one a row of a and one a row of w; one
a block of 128 of a and one a block of 128 x 128 of w; one number for a and one a row of w."""

SCALE_BLOCK = 128

STORED_ALIGNMENT = 256
"""What entries of the GEMM store may ask of the addresses of their operands."""

STORED_SCALE_COLUMNS = 4
"""Of what the columns of a weight's scales of blocks are a multiple where an entry reads them."""

Family = tuple[int, int, str, bool, str, str]
"""A product apart from its rows: n, k, dtype, whether it adds c, out, scales."""

MOST_INT = 2**63 - 1
MOST_SYMBOL = 2**53 - 1
MOST_NAME = 512
MOST_DIMS = 16
MOST_ALIGNMENT = 2 << 20
MOST_CUBIN = 1 << 30
MOST_ATTRIBUTES = 16
MOST_ATTRIBUTE_ID = 255
MOST_PARAMS = 1024
MOST_PARAM_BYTES = 4096
MOST_SHARED = 232_448
MOST_THREADS = 1024
MOST_TERMS = 1024
"""Operands and operations of one expression, written out."""

REGION_INDICES: Mapping[int, int] = {5: 64, 6: 7}
"""Indices that a kind of region may have (PEER, OPERAND); all others have 0 alone."""

VARIANT_PARAM_BYTES = 72
"""a, w, c, d, partials; rows, n, k as i32; two null pointers. Of a scaled product a, w, scales of
a, scales of w, c, d; rows as i32; two null pointers."""

REDUCE_PARAM_BYTES = 48
"""partials, c, d; rows, n as i32; two null pointers."""

GEMM_PARAM_BYTES, FIXED_PARAM_BYTES = 48, 40
"""Of a product: a, w, c, d, scales of a, scales of w; of other nodes that are no kernels."""

GRID_LIMITS = (2**31 - 1, 65_535, 65_535)
