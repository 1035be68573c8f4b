"""Statistics: what a store is good for, from notes that may be lost or wrong at any time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from vcc.cache.care.clock import now_of
from vcc.cache.care.items import Item, read_items
from vcc.cache.care.marks import blob_states
from vcc.cache.care.place import existing
from vcc.cache.trouble import storage
from vcc.cache.use import misses

TITLE_GAP = " · "


@dataclass(frozen=True, slots=True)
class ModelStats:
    """Figures of one model, or of all.

    Args:
        title: what the titles of its artifacts begin with; "" for all together.
        artifacts: how many there are.
        size: bytes of their blobs; shared ones count for each.
        hits: boots from them.
        misses: look-ups that nothing answered.
        saved_s: seconds of building that hits saved, as far as build times are known.
    """

    title: str
    artifacts: int
    size: int
    hits: int
    misses: int
    saved_s: float


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a store.

    Args:
        total: of all models; its size counts shared blobs once.
        models: of each base, those that saved most first.
    """

    total: ModelStats
    models: tuple[ModelStats, ...]


def stats(root: Path) -> Stats:
    """The figures of a store; one that is not there has none.

    Raises:
        StorageError, Unsafe: it cannot be read.
    """
    with storage("read the store at", str(root)), existing(root) as store:
        if store is None:
            return Stats(ModelStats("", 0, 0, 0, 0, 0.0), ())
        items, missed = read_items(store, now_of(store)).items, misses(store)
        size = sum(state.st_size for state in blob_states(store).values())
    counts = {base: use.count for base, use in missed.items()}
    models = tuple(sorted(_models(items, counts), key=lambda one: (-one.saved_s, one.title)))
    total = ModelStats(
        "",
        len(items),
        size,
        sum(one.hits for one in models),
        sum(counts.values()),
        sum(one.saved_s for one in models),
    )
    return Stats(total, models)


def _models(items: Iterable[Item], missed: Mapping[str, int]) -> Iterable[ModelStats]:
    by_base: dict[str, list[Item]] = {}
    for item in items:
        by_base.setdefault(item.base, []).append(item)
    for base, found in by_base.items():
        yield ModelStats(
            _shared([item.title for item in found]),
            len(found),
            sum(item.size for item in found),
            sum(item.hits for item in found),
            missed.get(base, 0),
            sum(item.hits * item.build_ms for item in found) / 1000,
        )


def _shared(titles: Sequence[str]) -> str:
    """The parts that all titles begin with; where none, every name that the model was given."""
    columns = list(zip(*(title.split(TITLE_GAP) for title in titles), strict=False))
    alike = takewhile(lambda column: len(set(column)) == 1, columns)
    return TITLE_GAP.join(column[0] for column in alike) or ", ".join(sorted(set(columns[0])))
