"""The GEMM store: matrix products of cuBLASLt as node tables, and measured choices between ways.

    v1/gemm/<digest of the GPU model>/<index>     indexes of engine/tune/index.py

One recording serves all models of a site. Node tables and cubins taken from cuBLAS stay in this
store: no artifact refers to them. Torch-free; the player's boot reads it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import msgspec

from vcc.cache.digest import Digest, xxh3
from vcc.cache.loaded import Loaded
from vcc.cache.settings import cache_root
from vcc.cache.shelf import Shelf
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import (
    PRODUCT,
    ChoiceRow,
    Choices,
    Product,
    Products,
    SelfTest,
    decode_index,
    gpu_row,
)
from vcc.engine.tune.recordings import GEMM, Reader, Recordings, Source, shelf_of
from vcc.engine.tune.shapes import GemmShape, Measured


@dataclass(frozen=True, slots=True)
class GemmEntry:
    """A product ready for the player: its node table over OPERAND regions, and the code it needs.

    `cubins` maps SHA-256 in hex to bytes; `workspace` is the bytes of the last operand. `small`,
    which is not stored, says that it is the library's choice with `calls.SMALL_WORKSPACE`.
    """

    shape: GemmShape
    table: bytes
    cubins: Mapping[str, bytes]
    workspace: int = 0
    small: bool = False


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
            StorageError, Unsafe: the store cannot be read. Damaged products are left out.
        """
        asked = None if wanted is None else frozenset(map(_product, wanted))
        found = self.recordings(gpu)
        with ExitStack() as stack:
            reader = Reader(found, stack)
            made = (_entry(reader, *item) for item in sorted(found.sources(asked).items()))
            return tuple(entry for entry in made if entry is not None)

    def known(self, gpu: Gpu, cublaslt: int | None = None) -> frozenset[GemmShape]:
        """The products that are stored whole, of one version of cuBLASLt or of any.

        All of them are read: what is damaged or gone counts as not recorded.
        """
        found = self.recordings(gpu)
        with ExitStack() as stack:
            reader = Reader(found, stack)
            return frozenset(
                GemmShape(*product)
                for product, sources in found.sources().items()
                if _entry(
                    reader, product, [s for s in sources if cublaslt in (None, s[0].cublaslt)]
                )
            )

    def self_tests(self, gpu: Gpu) -> Mapping[int, SelfTest]:
        """The latest result of the self-test by version of cuBLASLt."""
        return self.recordings(gpu).self_tests()

    def measured(self, gpu: Gpu, variants: str) -> Mapping[GemmShape, GemmChoice]:
        """The latest measurements against the kernels with this digest."""
        found = self.recordings(gpu).measured(variants)
        return {GemmShape(*product): _choice(*one) for product, one in found.items()}

    def recordings(self, gpu: Gpu) -> Recordings:
        """Everything about a GPU model in one pass; errors as `entries`."""
        return Recordings.read(self.root, gpu)

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPU models that anything is stored for."""
        found: list[Products | Choices] = []
        for name in Shelf(self.root, (GEMM,)).shelves():
            found += Shelf(self.root, (GEMM, name)).read_indexes(decode_index)
        return tuple(dict.fromkeys(Gpu(*index.gpu) for index in found))

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
        tables = b"".join(entry.table for entry in kept)
        bundle = b"".join((tables, *cubins.values()))
        digest = Digest.of(bundle).hex
        index = Products(
            gpu=gpu_row(gpu),
            cublaslt=cublaslt,
            created=int(time.time()),
            self_test=self_test,
            bundle=(digest, len(bundle)),
            tables=(Digest.of(tables).hex, xxh3(tables), len(tables)),
            cubins=tuple((name, xxh3(data), len(data)) for name, data in cubins.items()),
            products=tuple(
                (
                    *_product(one.shape),
                    *(len(one.table), one.workspace, tuple(place[name] for name in one.cubins)),
                )
                for one in kept
            ),
        )
        shelf_of(self.root, gpu).publish(msgspec.to_builtins(index), {digest: bundle})

    def publish_choices(
        self, gpu: Gpu, cublaslt: int, variants: str, choices: Sequence[Measured]
    ) -> None:
        """Add measurements; errors as `publish_products`."""
        rows: Any = tuple(
            (*_product(one.shape), one.route, one.stored_ns, one.variant_ns) for one in choices
        )
        index = Choices(gpu_row(gpu), cublaslt, int(time.time()), variants, rows)
        shelf_of(self.root, gpu).publish(msgspec.to_builtins(index), {})


def _entry(reader: Reader, product: Product, sources: Sequence[Source]) -> GemmEntry | None:
    """A product of the first recording in which it is whole."""
    for source in sources:
        recording, row = reader.recording(source), source[1]
        if recording is None:
            continue
        *_, workspace, used = recording.index.products[row]
        with reader.blaming():
            cubins = {recording.cubins[i].sha256: recording.cubin(i) for i in used}
            table = bytes(recording.table(row))
            return GemmEntry(GemmShape(*product), table, cubins, workspace)
    return None


def _product(shape: GemmShape) -> tuple[int, int, int, Any, bool, Any, Any]:
    return astuple(shape)


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


def _choice(index: Choices, row: ChoiceRow) -> GemmChoice:
    shape, (route, *times) = GemmShape(*row[:PRODUCT]), row[PRODUCT:]
    stored, variant = (None if ns < 0 else ns / 1e3 for ns in times)
    return GemmChoice(index.gpu[0], index.cublaslt, shape, route, stored, variant)
