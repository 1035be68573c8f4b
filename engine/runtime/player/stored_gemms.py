"""What a site's GEMM store holds for a player: offered at once, brought by a thread.

The indexes are read in one pass before the player's memory is placed. Entries are read, verified
and handed over beside everything else, those of the first graph first; a step that needs one
waits for it in the player, so every number of rows is computed one way, whenever it is asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import Struct

from vcc.cache.bundle import Part
from vcc.cache.errors import UsageError, VccError
from vcc.engine.graphs.table.layout import DTYPE_NAMES, SCALES
from vcc.engine.runtime.player.beside import Beside
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.gemm_calls import Offer, Supply
from vcc.engine.runtime.player.gemm_report import GemmReport
from vcc.engine.runtime.player.handle import PlayerHandle, Shape
from vcc.engine.tune.families import Products, rows_of
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import PRODUCT, VARIANT, Product
from vcc.engine.tune.recordings import Reader, Recording, Recordings, Source

STORED_ROUTE, VARIANT_ROUTE = 1, 2
"""Routes of csrc/player/gemms.h."""

_log = logging.getLogger(__name__)
FIRST, BATCH = 1, 24
"""Graphs whose entries come before all others, and entries that are handed over in one call."""


def offer_stored(
    handles: Sequence[PlayerHandle],
    device: Device,
    root: Path,
    sizes: Sequence[int],
    told: tuple[Sequence[Products], Products],
) -> TableGemms:
    """As `gemms.offer_gemms`, where there is a store; `told` are products of each player, and all.

    Raises:
        StorageError, Unsafe: it cannot be read.
    """
    recordings = Recordings.read(root, Gpu.of_info(device.info()))
    each_told, products = told
    counts = rows_of(sizes, max(products.gemms.values(), default=1))
    wanted = products.rows(counts)
    sources = recordings.sources(frozenset(wanted))
    routes = _routes(recordings, products)
    each, used = [], set[Product]()
    with ExitStack() as failed:  # what was offered and will not come is waited for otherwise
        for handle, own in zip(handles, each_told, strict=True):
            offered = [one for one in own.rows(counts) if one in sources]
            failed.callback(handle.finish_gemms)
            needed = handle.offer_gemms(
                [_offer(product, sources[product], routes.get(product, 0)) for product in offered]
            )
            used.update(offered[number] for number in needed)
            each.append(StoredGemms(handle, recordings, [sources[one] for one in offered], needed))
        failed.pop_all()
    # After a failed self-test nothing is tried again.
    sound = all(test.passed for test in recordings.self_tests().values())
    here = sum(one in sources for one in wanted)
    report = GemmReport(here, len(routes), len(used), lacking=sound and here < len(wanted))
    return TableGemms(each, report)


def _routes(recordings: Recordings, products: Products) -> dict[Product, int]:
    """The measured choices that are about products of this step."""
    found = recordings.measured(products.variants)
    return {
        product: VARIANT_ROUTE if row[PRODUCT] == VARIANT else STORED_ROUTE
        for product, (_, row) in found.items()
        if product[0] <= products.gemms.get(product[1:], 0)
    }


def _offer(product: Product, sources: Sequence[Source], route: int) -> Offer:
    m, n, k, dtype, has_c, out, scales = product
    workspace = max(index.products[row][8] for index, row in sources)
    scaled = (DTYPE_NAMES.index(out), SCALES.index(scales)) if scales else (0, 0)
    return Offer(m, (n, k, DTYPE_NAMES.index(dtype), int(has_c)), route, workspace, scaled)


class TableGemms:
    """Entries on their way to the players of an artifact's tables.

    Args:
        each: those of each player.
        report: what there is.
    """

    def __init__(self, each: Sequence[StoredGemms], report: GemmReport) -> None:
        self._each, self._report = each, report

    @property
    def report(self) -> GemmReport:
        """What there is, and what went wrong so far."""
        trouble = next((one.trouble for one in self._each if one.trouble), "")
        return replace(self._report, trouble=trouble)

    def start(self, graphs: Sequence[Sequence[Shape]]) -> None:
        """Begin to bring entries; the players may be placed and used meanwhile.

        Args:
            graphs: of each player, in the order in which they will be built; entries come in this
                order too.
        """
        for one, some in zip(self._each, graphs, strict=True):
            one.start(some)

    def wait(self) -> None:
        """Until all have come."""
        for one in self._each:
            one.wait()

    def close(self) -> None:
        """Bring no more, and wait for the threads."""
        for one in self._each:
            one.stop()
        self.wait()


class StoredGemms:
    """Entries on their way to one player.

    Args:
        handle: the player that was offered them.
        recordings: where they are.
        sources: of each offer.
        needed: offers that some step may take.

    Attributes:
        trouble: why some did not come, once the others have.
    """

    def __init__(
        self,
        handle: PlayerHandle,
        recordings: Recordings,
        sources: Sequence[Sequence[Source]],
        needed: Sequence[int],
    ) -> None:
        self.trouble = ""
        self._handle, self._recordings = handle, recordings
        self._sources, self._needed = sources, needed
        self._stopped = threading.Event()
        self._thread: Beside[None] | None = None

    def start(self, graphs: Sequence[Shape]) -> None:
        """Begin to bring entries, in the order in which these graphs need them."""
        self._thread = Beside(lambda: self._bring_all(graphs), "vcc-gemms")

    def wait(self) -> None:
        """Until all have come."""
        if self._thread is not None:
            self._thread.wait()

    def stop(self) -> None:
        """Bring no more after what is on its way."""
        self._stopped.set()

    def _bring_all(self, graphs: Sequence[Shape]) -> None:
        trouble = ""
        with ExitStack() as stack:
            reader = Reader(self._recordings, stack)
            try:
                sent: set[str] = set()
                for batch in self._batches(graphs):
                    if self._stopped.is_set():
                        return
                    trouble = trouble or self._bring(reader, batch, sent)
            except Exception as error:  # nothing of the store is needed, and steps wait
                _log.warning(
                    "matrix products of the store are not used: %s", error, exc_info=_bug(error)
                )
                trouble = trouble or str(error)
            finally:
                self._finish()
                self.trouble = trouble or reader.trouble

    def _finish(self) -> None:
        with suppress(UsageError):  # the player is closed already
            self._handle.finish_gemms()

    def _batches(self, graphs: Sequence[Shape]) -> Iterator[Sequence[int]]:
        """Offers by when they are needed: for the first graph, which is a batch of its own, for
        the other graphs, and at last those that only plain launches take."""
        done: set[int] = set()
        for some in (graphs[:FIRST], graphs[FIRST:]):
            order = self._handle.gemm_order(some, len(self._sources))
            yield from _cut([one for one in order if one not in done])
            done.update(order)
        yield from _cut([one for one in self._needed if one not in done])

    def _bring(self, reader: Reader, offers: Sequence[int], sent: set[str]) -> str:
        """Hand some entries over.

        Args:
            reader: of the recordings.
            offers: which.
            sent: digests of the cubins that the player has; new ones are added.

        Returns:
            Why the player refused one; empty when it took all.
        """
        trouble = ""
        waiting = {one: list(self._sources[one]) for one in offers}
        while waiting:  # in each round the next source of those that are not whole
            picked, waiting = _picked(reader, waiting)
            supply, failed = _filled(reader, picked, sent)
            waiting |= failed
            _, refused = self._handle.supply_gemms(supply)
            trouble = trouble or refused
        return trouble


class _Pick(Struct, frozen=True):
    """An entry as one recording has it, and where else it is recorded."""

    offer: int
    recording: Recording
    row: int
    others: list[Source]

    @property
    def cubins(self) -> dict[str, Part]:
        """By digest."""
        parts = (self.recording.cubins[i] for i in self.recording.index.products[self.row][9])
        return {part.sha256: part for part in parts}


def _picked(
    reader: Reader, waiting: Mapping[int, list[Source]]
) -> tuple[list[_Pick], dict[int, list[Source]]]:
    """Of each entry the first source that can be opened, and those that have to try another."""
    picked, again = [], {}
    for offer, sources in waiting.items():
        if not sources:
            continue  # given up: it is missing when all others have come
        recording = reader.recording(sources[0])
        if recording is None:
            again[offer] = sources[1:]
        else:
            picked.append(_Pick(offer, recording, sources[0][1], sources[1:]))
    return picked, again


def _filled(
    reader: Reader, picked: Sequence[_Pick], sent: set[str]
) -> tuple[Supply, dict[int, list[Source]]]:
    """The verified bytes of entries, and those that have to try another source."""
    fresh = {
        digest: (one.recording, part)
        for one in picked
        for digest, part in one.cubins.items()
        if digest not in sent
    }
    tables = [one.recording.index.products[one.row][7] for one in picked]
    supply, again = Supply([*(part.size for _, part in fresh.values()), *tables]), {}
    for digest, (recording, part) in fresh.items():
        with reader.blaming():
            supply.cubin(digest, part.size, partial(recording.read, part))
            sent.add(digest)
    for one in picked:
        again[one.offer] = one.others
        if one.cubins.keys() <= sent:
            with reader.blaming():
                supply.entry(one.offer, one.recording.table(one.row))
                del again[one.offer]
    return supply, again


def _bug(error: Exception) -> Exception | None:
    return None if isinstance(error, VccError) else error


def _cut(offers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(offers), BATCH):
        yield offers[start : start + BATCH]
