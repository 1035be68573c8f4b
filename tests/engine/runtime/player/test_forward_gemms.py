"""Matrix products of the site's store in plain forwards: what is taken, and what is lacking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.step_tables import HIDDEN
from support.supply_case import STORED, STORED_DIGEST, WORKSPACE, entry
from support.toy_forward import fixed_forward, played, varying_forward

from vcc.engine.runtime.player import device as devices
from vcc.engine.runtime.player.forward import PlayedForward
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry, GemmStore

pytestmark = pytest.mark.usefixtures("double")

FIXED = 40
"""Rows that are neither a capture size nor a bucket."""


def record(weights: Path, *rows: int) -> None:
    """Products of these rows into the site's store."""
    store, gpu = GemmStore(weights.parent / "store"), Gpu.of_info(devices.open_device().info())
    entries = [
        GemmEntry(
            GemmShape(one, HIDDEN, HIDDEN, "bfloat16"),
            entry(one),
            {STORED_DIGEST: STORED},
            WORKSPACE,
        )
        for one in rows
    ]
    store.publish_products(gpu, 130100, entries, SelfTest(True, len(rows)))


def route(forward: PlayedForward, tokens: int = 1) -> tuple[str, int]:
    """Who computes the product, and for how many rows."""
    (found,) = forward._tables[0].step.handle.gemms(tokens, 1)
    return found["route"], found["rows"]


def test_fixed_sizes_take_the_entry_of_just_their_rows(weights: Path) -> None:
    record(weights, 8, FIXED, 48)
    forward, notes = played(weights, fixed_forward(FIXED))
    assert route(forward) == ("store", FIXED)
    assert not forward.lacking, "no other rows are worth recording"
    assert "matrix products: 1 from the GEMM store, 0 choices, 1 used" in notes
    x = np.zeros((FIXED, HIDDEN), np.float32)
    assert forward({"x": x})["output_0"].shape == x.shape
    stats = forward._tables[0].step.handle.stats()
    assert (stats["graph_launches"], stats["plain_launches"]) == (1, 0)
    forward.close()


def test_fixed_sizes_are_lacking_until_their_rows_are_recorded(weights: Path) -> None:
    record(weights, 8, 48)
    forward, _ = played(weights, fixed_forward(FIXED))
    assert route(forward) == ("triton", FIXED)
    assert forward.lacking
    forward.close()


def test_sizes_that_vary_take_the_smallest_entry_that_has_room(weights: Path) -> None:
    """128 is a bucket, 160 the most rows; 144 has no bucket, and is not looked for."""
    record(weights, 128, 144, 160)
    forward, _ = played(weights, varying_forward(20, 8))
    assert [route(forward, tokens) for tokens in (1, 16, 17, 20)] == [
        ("store", 128),
        ("store", 128),
        ("store", 160),
        ("store", 160),
    ]
    assert not forward.lacking
    x = np.zeros((2, 8, HIDDEN), np.float32)
    assert forward({"x": x})["output_0"].shape == x.shape
    forward.close()


def test_one_size_that_varies_has_graphs_of_the_captured_sizes_and_launches_others(
    weights: Path,
) -> None:
    """Sizes 1, 2 and 4 are captured; nothing is padded."""
    forward, _ = played(weights, varying_forward(3, 8))
    handle = forward._tables[0].step.handle
    assert handle.graphs(wait=True).ready == 2
    before = handle.stats()
    for rows in (1, 2, 3):
        x = np.zeros((rows, 8, HIDDEN), np.float32)
        assert forward({"x": x})["output_0"].shape == x.shape
    after = handle.stats()
    assert after["graph_launches"] - before["graph_launches"] == 2
    assert after["plain_launches"] - before["plain_launches"] == 1
    forward.close()


def test_without_a_store_the_forward_computes_itself_and_says_what_it_lacks(weights: Path) -> None:
    forward, _ = played(weights, fixed_forward(FIXED))
    assert forward.lacking
    assert route(forward) == ("triton", FIXED)
    forward.close()


def test_damage_costs_the_entry_and_is_told(weights: Path) -> None:
    record(weights, FIXED)
    files = [one for one in (weights.parent / "store" / "v1" / "cas").rglob("*") if one.is_file()]
    file = max(files, key=lambda one: one.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    forward, notes = played(weights, fixed_forward(FIXED))
    assert route(forward) == ("triton", FIXED)
    assert any("is damaged" in note for note in notes), notes
    forward.close()


def test_a_policy_that_asks_for_signatures_leaves_the_store_alone(weights: Path) -> None:
    record(weights, FIXED)
    forward, notes = played(weights, fixed_forward(FIXED), unsigned=False)
    assert route(forward) == ("triton", FIXED)
    assert any("bear no signature" in note for note in notes)
    forward.close()
