"""Tables of ranges that are not those of one step, or of one memory: refused, nothing is kept."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import pytest
from support.player_boot import loaded
from support.ranged_boot import RANGES, blobs_of, listed, ranged
from support.step_tables import Step, toy_step

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.table.types import RegionKind
from vcc.engine.runtime.player import device as devices

pytestmark = pytest.mark.usefixtures("double")

LARGER = toy_step(layers=2, tokens=(1, 2))
LARGER = replace(
    LARGER,
    table=replace(
        LARGER.table,
        regions=tuple(
            replace(one, size=1 << 20) if one.kind is RegionKind.WORKSPACE else one
            for one in LARGER.table.regions
        ),
    ),
)


def moved(step: Step, which: str, **fields: object) -> Step:
    tensors = (
        replace(one, **fields) if one.name == which else one  # type: ignore[arg-type]
        for one in step.table.tensors
    )
    return replace(step, table=replace(step.table, tensors=tuple(tensors)))


SMALL = toy_step(layers=2, tokens=(1, 2))
HOSTILE = {
    "overlap": (blobs_of({"1-4": (1, 4), "3-64": (3, 64)}), ("1-4", "3-64"), "two node tables"),
    "gap": (blobs_of({"1-2": (1, 2), "4-64": (4, 64)}), ("1-2", "4-64"), "for sizes 3 to 3"),
    "not listed": (blobs_of(), ("1-2", "3-64"), "does not list that range"),
    "lacking": (blobs_of(), (*RANGES, "8-8"), "it lists that range"),
    "no list": (blobs_of(), (), "does not list that range"),
    "spelling": (blobs_of({"01-64": (1, 64)}), ("01-64",), "names no range"),
    "below": (blobs_of({"2-64": (2, 64)}), ("2-64",), "its sizes are"),
    "short": (blobs_of({"1-2": (1, 2), "3-63": (3, 63)}), ("1-2", "3-63"), "from 1 to 63"),
    "other sizes": (blobs_of({"1-3": (1, 2), "4-64": (3, 64)}), ("1-3", "4-64"), "its sizes are"),
    "wider": (blobs_of({"1-2": (1, 64), "3-64": (3, 64)}), ("1-2", "3-64"), "its sizes are"),
    "larger": (blobs_of(**{"1-2": LARGER}), RANGES, "does not fit the memory of the others"),
    "weight elsewhere": (
        blobs_of(**{"1-2": moved(SMALL, "w", offset=256, shape=(1, 16))}),
        RANGES,
        "w lies elsewhere",
    ),
    "input elsewhere": (
        blobs_of(**{"1-2": moved(SMALL, "positions", offset=0)}), RANGES, "positions lies elsewhere"
    ),
    "other name": (
        blobs_of(**{"1-2": moved(SMALL, "seed", name="seeds")}), RANGES, "lies elsewhere"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_tables_that_are_not_those_of_one_step_are_refused(weights: Path, case: str) -> None:
    free = devices.open_device().free_memory
    blobs, names, said = HOSTILE[case]
    with pytest.raises(IntegrityError) as told:
        loaded(ranged(weights, blobs=blobs, info=listed(*names)))
    assert said in f"{told.value}{told.value.why}"
    gc.collect()
    assert devices.open_device().free_memory == free
