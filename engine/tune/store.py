"""The GEMM store: matrix products of cuBLASLt as node tables, and measured choices between ways.

    v1/gemm/<digest of the GPU model>/<index>     indexes of engine/tune/index.py

One recording serves all models of a site. Node tables and cubins taken from cuBLAS stay in this
store: no artifact refers to them. Torch-free; the player's boot reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact
from vcc.cache.loaded import Loaded
from vcc.cache.settings import cache_root
from vcc.cache.shelf import Shelf
from vcc.engine.tune.index import (
    Choices,
    Measured,
    Products,
    SelfTest,
    Stored,
    read_index,
)
from vcc.engine.tune.shapes import GemmShape, Gpu

GEMM = "gemm"
_log = logging.getLogger(__name__)
Index = TypeVar("Index", Products, Choices)


@dataclass(frozen=True, slots=True)
class GemmEntry:
    """A product ready for the player: its node table over OPERAND regions, and the code it needs.

    `cubins` maps SHA-256 in hex to bytes.
    """

    shape: GemmShape
    table: bytes
    cubins: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class GemmChoice:
    """Which way a product is computed on a GPU model, and what both ways cost.

    Attributes:
        gpu, cublaslt: where it was measured, and the version of cuBLASLt.
        route: "cublaslt" (nodes of this store) or "triton" (a kernel of the artifact).
        cublaslt_us, triton_us: microseconds of the device; None where a way does not exist.
    """

    gpu: str
    cublaslt: int
    shape: GemmShape
    route: str
    cublaslt_us: float | None
    triton_us: float | None


@dataclass(frozen=True, slots=True)
class GemmStore:
    """The part of the store at `root` that holds matrix products."""

    root: Path

    @classmethod
    def open(cls, root: Path | None = None) -> GemmStore:
        """The store at `root`, else where the settings say. Creates nothing."""
        return cls(cache_root(root))

    def entries(self, gpu: Gpu, wanted: Iterable[GemmShape] | None = None) -> tuple[GemmEntry, ...]:
        """Recorded products of a GPU model; of several recordings the latest version's.

        Args:
            gpu: the device to play on.
            wanted: only these; None gives all.

        Raises:
            StorageError, Unsafe: the store cannot be read. Damaged recordings are left out.
        """
        asked = None if wanted is None else frozenset(wanted)
        found: dict[GemmShape, GemmEntry] = {}
        for index in self._products(gpu):
            new = [
                one
                for one in index.products
                if one.shape not in found and (asked is None or one.shape in asked)
            ]
            found.update((entry.shape, entry) for entry in self._read(gpu, index, new))
        return tuple(found[shape] for shape in sorted(found))

    def known(self, gpu: Gpu, cublaslt: int | None = None) -> frozenset[GemmShape]:
        """The products that are stored, of one version of cuBLASLt or of any."""
        return frozenset(
            one.shape
            for index in self._products(gpu)
            if cublaslt in (None, index.cublaslt)
            for one in index.products
        )

    def self_tests(self, gpu: Gpu) -> Mapping[int, SelfTest]:
        """The latest result of the self-test by version of cuBLASLt."""
        indexes = sorted(self._indexes(gpu, Products), key=lambda index: index.created)
        return {index.cublaslt: index.self_test for index in indexes}

    def measured(self, gpu: Gpu, variants: str) -> Mapping[GemmShape, GemmChoice]:
        """The latest measurements against the kernels with this digest."""
        indexes = sorted(self._indexes(gpu, Choices), key=lambda index: index.created)
        fit = (index for index in indexes if index.variants == variants)
        return {one.shape: _choice(index, one) for index in fit for one in index.choices}

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPU models that anything is stored for."""
        shelves = (Shelf(self.root, (GEMM, name)) for name in self._shelf_names())
        found = (_readable(index) for shelf in shelves for index in shelf.indexes())
        return tuple(dict.fromkeys(index.gpu for index in found if index is not None))

    def publish_products(
        self, gpu: Gpu, cublaslt: int, entries: Sequence[GemmEntry], self_test: SelfTest
    ) -> None:
        """Add a recording. Without a passed self-test only its result is kept.

        Raises:
            StorageError, Unsafe: it could not be written; nothing of it is visible.
        """
        kept = entries if self_test.passed else ()
        cubins = {digest: data for entry in kept for digest, data in entry.cubins.items()}
        place = {digest: index for index, digest in enumerate(cubins)}
        tables, products = bytearray(), []
        for entry in kept:
            used = tuple(place[digest] for digest in entry.cubins)
            products.append(Stored(entry.shape, len(tables), len(entry.table), used))
            tables += entry.table
        digest = Digest.of(tables).hex
        sizes = tuple((name, len(data)) for name, data in cubins.items())
        index = Products(
            *(gpu, cublaslt, int(time.time()), self_test),
            *((digest, len(tables)), sizes, tuple(products)),
        )
        self._shelf(gpu).publish(index.as_index(), {**cubins, digest: bytes(tables)})

    def publish_choices(
        self, gpu: Gpu, cublaslt: int, variants: str, choices: Sequence[Measured]
    ) -> None:
        """Add measurements; errors as `publish_products`."""
        index = Choices(gpu, cublaslt, int(time.time()), variants, tuple(choices))
        self._shelf(gpu).publish(index.as_index(), {})

    def _shelf(self, gpu: Gpu) -> Shelf:
        return Shelf(self.root, (GEMM, gpu.key.digest.hex))

    def _shelf_names(self) -> tuple[str, ...]:
        return Shelf(self.root, (GEMM,)).shelves()

    def _products(self, gpu: Gpu) -> list[Products]:
        """Recordings that passed their self-test, the latest version and recording first."""
        found = [index for index in self._indexes(gpu, Products) if index.self_test.passed]
        return sorted(found, key=lambda index: (index.cublaslt, index.created), reverse=True)

    def _indexes(self, gpu: Gpu, kind: type[Index]) -> list[Index]:
        indexes = map(_readable, self._shelf(gpu).indexes())
        return [index for index in indexes if isinstance(index, kind) and index.gpu == gpu]

    def _read(self, gpu: Gpu, index: Products, wanted: Sequence[Stored]) -> list[GemmEntry]:
        """The entries of one recording; none of it when a blob is gone or damaged."""
        shelf = self._shelf(gpu)
        if not wanted:
            return []
        try:
            tables = memoryview(shelf.read(*index.tables))
            needed = sorted({number for one in wanted for number in one.cubins})
            cubins = {number: shelf.read(*index.cubins[number]) for number in needed}
        except (IntegrityError, MissingArtifact) as error:
            _log.warning("a recording of matrix products is not used: %s", error)
            return []
        return [
            GemmEntry(
                one.shape,
                bytes(tables[one.offset : one.offset + one.size]),
                {index.cubins[number][0]: cubins[number] for number in one.cubins},
            )
            for one in wanted
        ]


def _readable(raw: Mapping[str, Any]) -> Products | Choices | None:
    """An index; None, and a warning, when it is damaged."""
    try:
        return read_index(raw)
    except IntegrityError as error:
        _log.warning("%s", error)
        return None


def choices(store: GemmStore, artifact: Loaded) -> tuple[GemmChoice, ...]:
    """The measured choices for the matrix products of an artifact, on every GPU model known here.

    Args:
        store: the site's GEMM store.
        artifact: a GPU artifact; one without node tables has none.

    Returns:
        Sorted by GPU and shape; empty before `vcc tune`.
    """
    from vcc.engine.tune.wanted import products_of

    products = products_of(artifact)
    if not products.gemms:
        return ()
    return tuple(
        one
        for gpu in sorted(store.gpus(), key=str)
        for shape, one in sorted(store.measured(gpu, products.variants).items())
        if products.has(shape)
    )


def _choice(index: Choices, one: Measured) -> GemmChoice:
    stored, variant = (None if ns < 0 else ns / 1e3 for ns in (one.stored_ns, one.variant_ns))
    return GemmChoice(index.gpu.name, index.cublaslt, one.shape, one.route, stored, variant)
