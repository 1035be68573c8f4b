"""What a GPU model's shelf of the GEMM store holds, read in one pass: recordings and measurements.

Light: a boot imports this, and none of what records or measures.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vcc.cache.bundle import Bundle, Part
from vcc.cache.errors import IntegrityError, MissingArtifact
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

GEMM = "gemm"
HINT = "vcc tune records it anew"
_log = logging.getLogger(__name__)

Source = tuple[Products, int]
"""A recording, and the row of a product in it."""


def shelf_of(root: Path, gpu: Gpu) -> Shelf:
    """Where a store keeps the products of a GPU model."""
    return Shelf(root, (GEMM, gpu.key.digest.hex))


class Recordings:
    """The indexes of one GPU model, as they were at one moment.

    Args:
        shelf: where their bundles are.
        indexes: of that model.
    """

    __slots__ = ("choices", "products", "shelf", "tests")

    def __init__(self, shelf: Shelf, indexes: Sequence[Products | Choices]) -> None:
        recorded = [one for one in indexes if isinstance(one, Products)]
        self.shelf = shelf
        self.tests: Sequence[Products] = sorted(recorded, key=lambda one: one.created)
        self.products: Sequence[Products] = sorted(
            (one for one in recorded if one.self_test.passed),
            key=lambda one: (one.cublaslt, one.created),
            reverse=True,
        )
        self.choices: Sequence[Choices] = sorted(
            (one for one in indexes if isinstance(one, Choices)), key=lambda one: one.created
        )

    @classmethod
    def read(cls, root: Path, gpu: Gpu) -> Recordings:
        """From the store at `root`.

        Raises:
            StorageError, Unsafe: it cannot be read. One that is not there has none.
        """
        shelf, row = shelf_of(root, gpu), gpu_row(gpu)
        found: tuple[Products | Choices, ...] = shelf.read_indexes(decode_index)
        return cls(shelf, [one for one in found if one.gpu == row])

    def self_tests(self) -> Mapping[int, SelfTest]:
        """The latest result of the self-test by version of cuBLASLt."""
        return {one.cublaslt: one.self_test for one in self.tests}

    def sources(self, wanted: Container[Product] | None = None) -> dict[Product, list[Source]]:
        """Where products are recorded, the latest version's latest recording first.

        Args:
            wanted: only these; None gives all.
        """
        found: dict[Product, list[Source]] = {}
        for index in self.products:
            for number, row in enumerate(index.products):
                if wanted is None or row[:PRODUCT] in wanted:
                    found.setdefault(row[:PRODUCT], []).append((index, number))
        return found

    def measured(self, variants: str) -> dict[Product, tuple[Choices, ChoiceRow]]:
        """The latest measurements against the kernels with this digest, of both ways.

        A product that had no stored nodes when it was timed says nothing about those of today.
        """
        fit = (index for index in self.choices if index.variants == variants)
        rows = ((index, row) for index in fit for row in index.choices)
        return {row[:PRODUCT]: (index, row) for index, row in rows if row[8] >= 0}

    @contextmanager
    def opened(self, index: Products) -> Iterator[Recording]:
        """A recording, open as long as the context lasts.

        Raises:
            MissingArtifact, Damaged, StorageError, Unsafe: its bundle cannot be opened.
        """
        with self.shelf.bundle(*index.bundle) as bundle:
            yield Recording(index, bundle)


class Reader:
    """Opens recordings once, as long as `stack` lasts; what cannot be used is told once.

    Attributes:
        trouble: the first thing that was wrong; empty while nothing is.
    """

    __slots__ = ("_open", "_recordings", "_stack", "_told", "trouble")

    def __init__(self, recordings: Recordings, stack: ExitStack) -> None:
        self._recordings, self._stack, self.trouble = recordings, stack, ""
        self._open: dict[int, Recording | None] = {}
        self._told: set[str] = set()

    def recording(self, source: Source) -> Recording | None:
        """The recording of a source; None where its bundle is gone or damaged.

        Raises:
            StorageError, Unsafe: the store cannot be read.
        """
        index = source[0]
        key = id(index)  # which `recordings` keeps alive
        if key not in self._open:
            self._open[key] = None
            with self.blaming():
                self._open[key] = self._stack.enter_context(self._recordings.opened(index))
        return self._open[key]

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """What is damaged or gone inside ends the block with a warning, the same one once."""
        try:
            yield
        except (IntegrityError, MissingArtifact) as error:
            why = str(error)
            if why not in self._told:
                _log.warning("a recording of matrix products is not used: %s; %s", why, HINT)
            self._told.add(why)
            self.trouble = self.trouble or why


class Recording:
    """An open recording; parts are read and verified when they are asked for.

    Attributes:
        index: of it.
        cubins: where each lies, by number.
    """

    __slots__ = ("_bundle", "_starts", "_tables", "cubins", "index")

    def __init__(self, index: Products, bundle: Bundle) -> None:
        self.index, self._bundle, self._starts = index, bundle, index.table_starts()
        self._tables: memoryview | Part
        self._tables, *cubins = index.parts()
        self.cubins: Sequence[Part] = cubins

    def table(self, row: int) -> memoryview:
        """The node table of a product.

        Raises:
            Damaged, StorageError: the part of all tables cannot be used.
        """
        if isinstance(self._tables, Part):
            data = memoryview(bytearray(self._tables.size))
            self._bundle.read(self._tables, data)
            self._tables = data
        return self._tables[self._starts[row] : self._starts[row + 1]]

    def read(self, part: Part, into: memoryview) -> None:
        """A cubin; as `Bundle.read`."""
        self._bundle.read(part, into)

    def cubin(self, number: int) -> bytes:
        """As `read`, into bytes of their own."""
        data = bytearray(self.cubins[number].size)
        self.read(self.cubins[number], memoryview(data))
        return bytes(data)
