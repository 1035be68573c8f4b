"""What benchmarks say of the GEMM store: nothing is passed over in silence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import common
import products
import pytest


def tune(**changes: Any) -> dict[str, Any]:
    """An artifact of what `vcc tune --json` prints."""
    measured = [
        {"route": route, "stored_ns": stored, "variant_ns": 5}
        for route, stored in (("cublaslt", 4), ("triton", 6), ("cublaslt", 3))
    ]
    answer = {"recorded": 2, "kept": 1, "refused": [], "cublaslt": 130100, "self_test": None}
    return {"answer": answer, "measured": measured, "trouble": "", **changes}


def test_counts_of_what_was_recorded_and_chosen() -> None:
    told = products.summary(tune())
    assert told["stored"] == 3
    assert told["choices"] == {"cublaslt": 2, "triton": 1}
    assert told["without_entry"] == 0


def test_a_store_that_could_not_be_filled_is_a_missed_row_with_the_reason() -> None:
    told = products.summary(tune(answer=None, measured=[], trouble="there is no CUPTI"))
    (row,) = products.rows_of(told)
    assert not row.reached
    assert row.note == "there is no CUPTI"


def test_a_filled_store_that_serves_nothing_is_a_missed_row() -> None:
    told = products.summary(tune())
    routes = {"1": {"triton": 129}, "2048": {"triton": 129}}
    *steps, every = products.served(told, routes)
    assert [row.value for row in steps] == [0, 0]
    assert not every.reached
    served = products.served(told, {**routes, "1": {"store": 100, "triton": 29}})
    assert served[-1].reached
    assert served[0].note == "100 store, 29 triton"


def test_where_every_choice_is_tritons_nothing_is_missed() -> None:
    lost = [{"route": "triton", "stored_ns": 4, "variant_ns": 3}]
    told = products.summary(tune(measured=lost))
    assert all(row.reached for row in products.served(told, {"1": {"triton": 129}}))


@pytest.mark.parametrize("roomy", [True, False])
def test_models_and_their_store_stay_where_they_are_when_room_becomes_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roomy: bool
) -> None:
    """What is written takes the room by which the place was chosen."""
    free = 4 * common.MODELS_BYTES if roomy else 0
    left = [SimpleNamespace(free=free), SimpleNamespace(free=0), SimpleNamespace(free=1 << 60)]
    monkeypatch.setattr(common, "MEMORY", tmp_path)
    monkeypatch.setattr(common, "HERE", tmp_path / "a" / "b" / "c" / "d")
    monkeypatch.setattr(common.shutil, "disk_usage", lambda path: left.pop(0))
    monkeypatch.delenv("VCC_BENCH_MODELS", raising=False)
    first = common.models_folder()
    assert first.is_relative_to(tmp_path / "vcc-gpu-models") == roomy
    assert common.models_folder() == first
    assert common.store()["VCC_CACHE_DIR"] == str(first / "store")
    if roomy:  # and another benchmark, of another process
        monkeypatch.delenv("VCC_BENCH_MODELS")
        assert common.models_folder() == first
