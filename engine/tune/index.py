"""The indexes of the GEMM store: what stands on a shelf of `cache/shelf.py`, checked when read.

products = {"kind": "products", "format": 1, "gpu": gpu, "cublaslt": version, "created": seconds,
            "self_test": {"passed": bool, "products": count, "why": text},
            "tables": [sha256, bytes], "cubins": [[sha256, bytes]...],
            "products": [[m, n, k, dtype, has_c, offset, bytes, [cubin...]]...]}
choices  = {"kind": "choices", "format": 1, "gpu": gpu, "cublaslt": version, "created": seconds,
            "variants": sha256 of the kernels that were measured,
            "choices": [[m, n, k, dtype, has_c, route, stored ns or -1, variant ns or -1]...]}
gpu      = [name, sm, sm_count]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.digest import is_digest
from vcc.cache.errors import IntegrityError
from vcc.engine.tune.shapes import DTYPES, GemmShape, Gpu

FORMAT = 1
MOST_SIZE = 1 << 31
MOST_BLOB = 1 << 30


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a product's node table lies in the blob of tables, and the cubins it needs."""

    shape: GemmShape
    offset: int
    size: int
    cubins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Whether recorded nodes gave the library's own bits at other addresses; `why` if not."""

    passed: bool
    products: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Products:
    """One recording: products of one GPU model and one version of cuBLASLt."""

    gpu: Gpu
    cublaslt: int
    created: int
    self_test: SelfTest
    tables: tuple[str, int]
    cubins: tuple[tuple[str, int], ...]
    products: tuple[Stored, ...]

    def as_index(self) -> dict[str, Any]:
        """The inverse of `read_products`."""
        return {
            **_head("products", self.gpu, self.cublaslt, self.created),
            "self_test": {
                "passed": self.self_test.passed,
                "products": self.self_test.products,
                "why": self.self_test.why,
            },
            "tables": list(self.tables),
            "cubins": [list(cubin) for cubin in self.cubins],
            "products": [
                [*_shape_row(one.shape), one.offset, one.size, list(one.cubins)]
                for one in self.products
            ],
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """One product both ways, in nanoseconds; -1 where a way does not exist."""

    shape: GemmShape
    route: str
    stored_ns: int
    variant_ns: int


@dataclass(frozen=True, slots=True)
class Choices:
    """The measurements of one run of `vcc tune`; `variants` is the digest of the kernels."""

    gpu: Gpu
    cublaslt: int
    created: int
    variants: str
    choices: tuple[Measured, ...]

    def as_index(self) -> dict[str, Any]:
        """The inverse of `read_choices`."""
        return {
            **_head("choices", self.gpu, self.cublaslt, self.created),
            "variants": self.variants,
            "choices": [
                [*_shape_row(one.shape), one.route, one.stored_ns, one.variant_ns]
                for one in self.choices
            ],
        }


def read_index(index: Mapping[str, Any]) -> Products | Choices | None:
    """An index, checked; None for one of a later format or another kind.

    Raises:
        IntegrityError: it breaks the grammar.
    """
    reader = _READERS.get(str(index.get("kind")))
    if reader is None or index.get("format") != FORMAT:
        return None
    try:
        return reader(index)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise IntegrityError("an index of the GEMM store is refused", why) from error


def _products(index: Mapping[str, Any]) -> Products:
    tables = _blob(index["tables"])
    cubins = tuple(_blob(pair) for pair in index["cubins"])
    found = tuple(_stored(row, tables[1], len(cubins)) for row in index["products"])
    test = index["self_test"]
    self_test = SelfTest(bool(test["passed"]), _number(test["products"]), str(test["why"]))
    return Products(*_common(index), self_test, tables, cubins, found)


def _stored(row: list[Any], bytes_of_tables: int, cubins: int) -> Stored:
    *shape, offset, size, used = row
    stored = Stored(_shape(shape), _number(offset), _number(size), tuple(map(_number, used)))
    if stored.offset + stored.size > bytes_of_tables or any(i >= cubins for i in stored.cubins):
        raise ValueError(f"{stored.shape} lies outside its blobs")
    return stored


def _choices(index: Mapping[str, Any]) -> Choices:
    if not is_digest(index["variants"]):
        raise ValueError("variants is no digest")
    rows = tuple(_measured(row) for row in index["choices"])
    return Choices(*_common(index), index["variants"], rows)


def _measured(row: list[Any]) -> Measured:
    *shape, route, stored, variant = row
    if route not in ROUTES:
        raise ValueError(f"unknown route {route!r:.40}")
    return Measured(_shape(shape), route, _time(stored), _time(variant))


STORED, VARIANT = "cublaslt", "triton"
ROUTES = (STORED, VARIANT)

_READERS: Mapping[str, Callable[[Mapping[str, Any]], Products | Choices]] = {
    "products": _products,
    "choices": _choices,
}


def _head(kind: str, gpu: Gpu, cublaslt: int, created: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "format": FORMAT,
        "gpu": [gpu.name, gpu.sm, gpu.sm_count],
        "cublaslt": cublaslt,
        "created": created,
    }


def _common(index: Mapping[str, Any]) -> tuple[Gpu, int, int]:
    name, sm, count = index["gpu"]
    gpu = Gpu(str(name), _number(sm), _number(count))
    return gpu, _number(index["cublaslt"]), _number(index["created"], 1 << 53)


def _shape_row(shape: GemmShape) -> list[Any]:
    return [shape.m, shape.n, shape.k, shape.dtype, shape.has_c]


def _shape(row: list[Any]) -> GemmShape:
    m, n, k, dtype, has_c = row
    if dtype not in DTYPES or type(has_c) is not bool or min(m, n, k) < 1:
        raise ValueError(f"no product: {row!r:.80}")
    return GemmShape(_number(m), _number(n), _number(k), dtype, has_c)


def _number(value: Any, most: int = MOST_SIZE) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.40} is no number in range")
    return value


def _time(value: Any) -> int:
    return -1 if value == -1 else _number(value, 1 << 53)


def _blob(pair: list[Any]) -> tuple[str, int]:
    digest, size = pair
    if not is_digest(digest):
        raise ValueError("no digest")
    return digest, _number(size, MOST_BLOB)
