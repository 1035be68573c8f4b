"""Recording that a run leaves behind: the run starts it and is gone; for GPU artifacts, once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vcc.cache.errors import DeviceError
from vcc.cache.manifest import Manifest
from vcc.cache.store import Store
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Gemm, NodeTable, Symbol
from vcc.engine.tune import after_run, later
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmStore

GEMM_TABLE = NodeTable(symbols=(Symbol("T", 1, 64),), gemms=(Gemm("T", 64, 32, "bfloat16"),))
MOST_SECONDS = 0.1
"""That a run may wait for the start of a process, on a loaded machine; it takes 2 ms elsewhere."""


pytestmark = pytest.mark.usefixtures("fake_libraries")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The artifacts that a process would have been started for."""
    found: list[str] = []
    monkeypatch.setattr(after_run, "start", lambda root, artifact: found.append(artifact))
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


def test_the_products_of_its_graphs_and_its_largest_step(tmp_path: Path) -> None:
    store, artifact = stored(tmp_path, "Player")
    job = later.lacking(store.root, artifact)
    assert job is not None
    assert [shape.m for shape in job.shapes] == [1, 8, 64]


def test_nothing_for_other_loaders_and_what_is_not_stored(tmp_path: Path) -> None:
    store, artifact = stored(tmp_path, "TorchLoader")
    assert later.lacking(store.root, artifact) is None
    assert later.lacking(store.root, "f" * 64) is None


def test_a_run_starts_it_and_does_not_wait(tmp_path: Path) -> None:
    store, artifact = stored(tmp_path, "Player")
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        assert after_run.record_beside(store.root, artifact) == after_run.NOTE
        taken.append(time.perf_counter() - start)
    assert min(taken) < MOST_SECONDS
    gemms = GemmStore(store.root)
    deadline = time.monotonic() + 60
    while not gemms.gpus() and time.monotonic() < deadline:
        time.sleep(0.05)
    (gpu,) = gemms.gpus()
    assert gemms.known(gpu) == {GemmShape(m, 64, 32, "bfloat16") for m in (1, 8, 64)}
    assert later.lacking(store.root, artifact) is None


def test_not_where_it_is_forbidden_and_not_without_an_artifact(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert after_run.record_beside(tmp_path, None) == ""
    monkeypatch.setenv("VCC_RECORD_PRODUCTS", "0")
    assert after_run.record_beside(tmp_path, "a") == ""
    assert started == []


def test_not_where_its_libraries_are_missing(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_run, "are_here", lambda names: False)
    assert after_run.record_beside(tmp_path, "a") == ""
    assert started == []


def test_a_machine_without_a_gpu_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(ordinal: int) -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr(later, "this_gpu", none)
    store, artifact = stored(tmp_path, "Player")
    after_run.main(str(store.root), artifact)
    assert GemmStore(store.root).gpus() == ()
