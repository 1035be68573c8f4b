"""Recording that a run leaves behind: for GPU artifacts, once, unless it is forbidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_libraries import environment

from vcc.cache.manifest import Manifest
from vcc.cache.store import Store
from vcc.engine import native
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Gemm, NodeTable, Symbol
from vcc.engine.tune import after_run, later
from vcc.engine.tune.shapes import GemmShape

GEMM_TABLE = NodeTable(symbols=(Symbol("T", 1, 64),), gemms=(Gemm("T", 64, 32, "bfloat16"),))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[GemmShape]:
    """What would be recorded."""
    if native.library("vcc_abi") is None:
        pytest.skip("built without a compiler")
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    found: list[GemmShape] = []
    monkeypatch.setattr(later, "start", lambda root, shapes, ordinal: found.extend(shapes))
    return found


def stored(folder: Path, loader: str) -> tuple[Store, str]:
    store = Store.open(folder / "store")
    manifest = Manifest(
        request=(("model.digest", "x"),),
        code_key=(("a", "b"),),
        host_rules={"loader": loader},
        info={"compilation": {"capture_sizes": [1, 8]}},
    )
    return store, store.publish(manifest, {"table/step": encode(GEMM_TABLE)}).artifact


def test_the_products_of_its_graphs_and_its_largest_step(
    tmp_path: Path, started: list[GemmShape]
) -> None:
    note = after_run.record_beside(*stored(tmp_path, "Player"))
    assert [shape.m for shape in started] == [1, 8, 64]
    assert "recording 3 matrix products" in note


def test_not_where_it_is_forbidden(
    tmp_path: Path, started: list[GemmShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCC_RECORD_PRODUCTS", "0")
    assert after_run.record_beside(*stored(tmp_path, "Player")) == ""
    assert started == []


def test_not_for_other_loaders_and_not_without_a_stored_artifact(
    tmp_path: Path, started: list[GemmShape]
) -> None:
    store, artifact = stored(tmp_path, "TorchLoader")
    assert after_run.record_beside(store, artifact) == ""
    assert after_run.record_beside(store, None) == ""
    assert after_run.record_beside(store, "f" * 64) == ""
    assert started == []


def test_a_machine_without_a_gpu_costs_nothing(
    tmp_path: Path, started: list[GemmShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_run, "this_gpu", _no_gpu)
    assert after_run.record_beside(*stored(tmp_path, "Player")) == ""


def _no_gpu(ordinal: int) -> None:
    from vcc.cache.errors import DeviceError

    raise DeviceError("no GPU")
