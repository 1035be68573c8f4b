"""Matrix products of the site's store for tables of ranges: each is offered what it can take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.player_boot import loaded
from support.ranged_boot import RANGES, blobs_of, ranged
from support.step_tables import HIDDEN, TOKENS, VOCAB
from support.supply_case import STORED, STORED_DIGEST, WORKSPACE, entry

from vcc.cache.errors import StorageError
from vcc.engine.config.modes import GraphMode
from vcc.engine.graphs.table.decode import decode
from vcc.engine.runtime.player import device as devices
from vcc.engine.runtime.player.gemm_calls import Offer
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry, GemmStore
from vcc.engine.tune.wanted import products_of_tables

pytestmark = pytest.mark.usefixtures("double")

ROWS = (2, 8, TOKENS)


def recorded(weights: Path) -> None:
    store, gpu = GemmStore(weights.parent / "store"), Gpu.of_info(devices.open_device().info())
    entries = [
        GemmEntry(
            GemmShape(rows, HIDDEN, HIDDEN, "bfloat16"),
            entry(rows),
            {STORED_DIGEST: STORED},
            WORKSPACE,
        )
        for rows in ROWS
    ]
    store.publish_products(gpu, 130100, entries, SelfTest(True, len(ROWS)))


def test_a_table_takes_entries_up_to_its_own_largest_step(weights: Path) -> None:
    """T of the exact size is 4: no entry of so many rows is there, and 8 rows have no room."""
    recorded(weights)
    runner = loaded(ranged(weights, GraphMode.FULL_DECODE_ONLY))
    runner._parts.gemms.wait()
    assert runner.wait_graphs().failed == 0
    found = {}
    for tokens in (1, 2, 3, 4, 8, 9, TOKENS):
        first, *_ = runner._parts.table(tokens).handle.gemms(tokens, 1)
        found[tokens] = (first["route"], first["rows"])
    assert found == {
        1: ("store", 2),
        2: ("store", 2),
        3: ("store", 8),
        4: ("triton", 4),
        8: ("store", 8),
        9: ("store", TOKENS),
        TOKENS: ("store", TOKENS),
    }
    report = runner._parts.gemms.report
    assert (report.entries, report.used, report.trouble) == (3, 3, "")
    assert report.lacking, "nothing is recorded of the second product"
    runner.close()


def test_offers_to_some_tables_are_taken_back_when_one_fails(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their graphs would wait for entries that nobody brings."""
    recorded(weights)
    kept, calls = PlayerHandle.offer_gemms, list[int]()

    def offer(self: PlayerHandle, offers: Sequence[Offer]) -> list[int]:
        calls.append(len(offers))
        if len(calls) == 2:
            raise StorageError("the store went away")
        return kept(self, offers)

    monkeypatch.setattr(PlayerHandle, "offer_gemms", offer)
    runner = loaded(ranged(weights, GraphMode.FULL_DECODE_ONLY))
    assert "the store went away" in runner._parts.gemms.report.trouble
    assert runner.wait_graphs().failed == 0
    first, *_ = runner.player.gemms(8, 1)
    assert first["route"] == "triton"
    runner.close()


def test_the_ends_of_ranges_are_worth_recording() -> None:
    tables = [decode(data) for data in blobs_of().values()]
    found = products_of_tables(tables)
    one, head = ((n, HIDDEN, "bfloat16", False, "", "") for n in (HIDDEN, VOCAB))
    assert found.gemms == {one: TOKENS, head: 8}
    assert found.ends == {one: (2, 4, TOKENS), head: (8,)}, "a row a sequence in all of them"
    assert not found.fixed
    assert len(tables) == len(RANGES)
    assert products_of_tables(tables[:1]).variants == found.variants
