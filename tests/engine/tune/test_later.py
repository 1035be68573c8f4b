"""What a site lacks for the products of an artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

from vcc.engine.tune import later
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry, GemmStore

H200 = Gpu("NVIDIA H200", 90, 132)
ONE, OTHER = GemmShape(1, 64, 32, "bfloat16"), GemmShape(8, 64, 32, "bfloat16")


def test_only_what_the_store_lacks_is_recorded(tmp_path: Path, fake_libraries: None) -> None:
    store = GemmStore(tmp_path)
    store.publish_products(H200, 130100, [GemmEntry(ONE, b"t", {})], SelfTest(True, 1))
    assert later.missing(store, H200, [ONE, OTHER]) == ((OTHER,), "")
    assert later.missing(store, H200, [ONE]) == ((), "all products are stored")


def test_after_a_failed_self_test_nothing_is_tried_again(
    tmp_path: Path, fake_libraries: None
) -> None:
    store = GemmStore(tmp_path)
    store.publish_products(H200, 130100, [], SelfTest(False, 1, "1x64x32: 3 bytes differ"))
    shapes, why = later.missing(store, H200, [ONE])
    assert shapes == ()
    assert "3 bytes differ" in why


def test_without_the_libraries_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "are_here", lambda names: False)
    shapes, why = later.missing(GemmStore(tmp_path), H200, [ONE])
    assert shapes == ()
    assert why == "CUPTI is not on this machine"
