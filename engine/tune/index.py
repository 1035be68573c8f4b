"""The indexes of the GEMM store: what stands on a shelf of `cache/shelf.py`, checked when read.

products = {"kind": "products", "format": 5, "gpu": gpu, "cublaslt": version, "created": seconds,
            "self_test": {"passed": bool, "products": count, "why": text},
            "bundle": [sha256, bytes], "tables": [sha256, xxh3, bytes],
            "cubins": [[sha256, xxh3, bytes]...],
            "products": [[product, bytes, workspace, [cubin...]]...]}
choices  = {"kind": "choices", "format": 4, "gpu": gpu, "cublaslt": version, "created": seconds,
            "variants": sha256 of the kernels that were measured,
            "choices": [[product, route, stored ns or -1, variant ns or -1]...]}
product  = m, n, k, dtype, has_c, out, scales          seven entries of the row
gpu      = [name, sm, sm_count]
bundle   = the node tables in the order of products, then the cubins

A boot reads this for hundreds of products, so rows stay tuples, and types are checked by msgspec.
"""

# No `from __future__ import annotations`: msgspec would have to evaluate every annotation's text.

import logging
from functools import cache
from itertools import accumulate, chain
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct

from vcc.cache.bundle import Part
from vcc.cache.canonical import FormatError, check_text
from vcc.cache.key import is_clean
from vcc.engine.graphs.table.layout import FP8
from vcc.engine.tune.gpu import Gpu

FORMATS = {"products": 5, "choices": 4}
_log = logging.getLogger(__name__)

Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Xxh3: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 31)]
Seconds: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
Size: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 31)]
Time: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 53)]
Dtype: TypeAlias = Literal["float32", "float16", "bfloat16", "float8_e4m3fn"]
Out: TypeAlias = Literal["", "float32", "float16", "bfloat16"]
Scales: TypeAlias = Literal["", "tensor", "rows", "blocks"]
Route: TypeAlias = Literal["cublaslt", "triton"]

DTYPES = get_args(Dtype)
"""Element types that can be recorded."""

STORED, VARIANT = "cublaslt", "triton"

Product: TypeAlias = tuple[int, int, int, str, bool, str, str]
"""m, n, k, dtype, has_c, out, scales: a `shapes.GemmShape` as it stands in a row."""

PRODUCT: Final = 7
"""Entries of a row that say which product it is about."""

ProductRow: TypeAlias = tuple[
    Size, Size, Size, Dtype, bool, Out, Scales, Number, Number, tuple[Number, ...]
]
"""A product, bytes of its node table, bytes of workspace, the cubins it needs."""

ChoiceRow: TypeAlias = tuple[Size, Size, Size, Dtype, bool, Out, Scales, Route, Time, Time]
"""A product, the faster way, nanoseconds of both."""


class SelfTest(Struct, frozen=True):
    """Whether recorded nodes gave the library's own bits at other addresses; `why` if not."""

    passed: bool
    products: Number
    why: str = ""


class Products(Struct, frozen=True, tag_field="kind", tag="products", forbid_unknown_fields=True):
    """One recording: products of one GPU model and one version of cuBLASLt.

    Attributes:
        bundle: SHA-256 and bytes of the blob that holds everything.
        tables: SHA-256, XXH3-128 and bytes of all node tables together, which come first.
        cubins: the same of each cubin, in the order in which they follow.
    """

    gpu: tuple[str, Number, Number]
    cublaslt: Number
    created: Seconds
    self_test: SelfTest
    bundle: tuple[Sha256, Number]
    tables: tuple[Sha256, Xxh3, Number]
    cubins: tuple[tuple[Sha256, Xxh3, Number], ...]
    products: tuple[ProductRow, ...]
    format: Literal[5] = 5

    def check(self) -> None:
        """What types do not say.

        Raises:
            ValueError: a part lies outside the bundle, or a cubin does not exist.
        """
        if any(_is_odd(row) for row in self.products):
            raise ValueError("a product has fp8 without scales, or scales without fp8")
        if sum(row[7] for row in self.products) != self.tables[2]:
            raise ValueError("node tables lie outside their part")
        if self.tables[2] + sum(cubin[2] for cubin in self.cubins) != self.bundle[1]:
            raise ValueError("parts are not the whole bundle")
        used = chain.from_iterable(row[9] for row in self.products)
        if max(used, default=-1) >= len(self.cubins):
            raise ValueError("a product needs a cubin that is not there")

    def table_starts(self) -> list[int]:
        """Where each product's node table begins in the part of tables."""
        return [0, *accumulate(row[7] for row in self.products)]

    def parts(self) -> tuple[Part, ...]:
        """The part of all tables, and then each cubin's."""
        all_parts = (self.tables, *self.cubins)
        starts = accumulate((part[2] for part in all_parts), initial=0)
        return tuple(
            Part(sha256, fast, start, size)
            for (sha256, fast, size), start in zip(all_parts, starts, strict=False)
        )


class Choices(Struct, frozen=True, tag_field="kind", tag="choices", forbid_unknown_fields=True):
    """The measurements of one run of `vcc tune`; `variants` is the digest of the kernels."""

    gpu: tuple[str, Number, Number]
    cublaslt: Number
    created: Seconds
    variants: Sha256
    choices: tuple[ChoiceRow, ...]
    format: Literal[4] = 4

    def check(self) -> None:
        """As that of `Products`."""
        if any(_is_odd(row) for row in self.choices):
            raise ValueError("a product has fp8 without scales, or scales without fp8")


def _is_odd(row: ProductRow | ChoiceRow) -> bool:
    return not (row[3] == FP8) == bool(row[5]) == bool(row[6])


class _Head(Struct):
    kind: str = ""
    format: int = 0


def decode_index(data: bytes) -> Products | Choices | None:
    """An index of this version; None, with a warning, for one that breaks the grammar.

    Another kind or format is None without a word.

    Raises:
        FormatError: not canonical JSON, or over its caps.
    """
    check_text(data, "index")
    try:
        head = _heads().decode(data)
        if FORMATS.get(head.kind) != head.format:
            return None
        found = _indexes().decode(data)
        found.check()
    except (msgspec.ValidationError, ValueError) as error:
        if isinstance(error, msgspec.DecodeError) and not isinstance(
            error, msgspec.ValidationError
        ):
            raise FormatError("the index is not JSON", str(error)) from error
        _log.warning("an index of the GEMM store is refused: %s", error)
        return None
    if encode_index(found) != data or not all(map(is_clean, _texts(found))):
        raise FormatError("the index is not canonical")
    return found


def encode_index(index: Products | Choices) -> bytes:
    """The text of an index."""
    return msgspec.json.encode(index, order="sorted")


def gpu_row(gpu: Gpu) -> tuple[str, int, int]:
    """A model of GPU as an index has it."""
    return gpu.name, gpu.sm, gpu.sm_count


def _texts(index: Products | Choices) -> tuple[str, ...]:
    """Those that types leave free."""
    return (index.gpu[0], index.self_test.why if isinstance(index, Products) else "")


@cache
def _heads() -> msgspec.json.Decoder[_Head]:
    return msgspec.json.Decoder(_Head)


@cache
def _indexes() -> msgspec.json.Decoder[Products | Choices]:
    return msgspec.json.Decoder(Products | Choices)
