"""Recorded builds: what their manifest says, and when a stored one answers again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.gpu_jobs import vcc

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.compile import recorded
from vcc.engine.events import NullEvents
from vcc.engine.graphs.recorder.tables import Tables
from vcc.engine.monitor import Counters
from vcc.engine.pipeline import build

DEVICE = {"name": "NVIDIA H200", "driver": 13000}


def asked(shapes: str, compile: str = "none"):
    options = {"target": "sm_90", "mode": "full", "compile": compile, "shapes": shapes}
    return build_request(ModelOptions("demo", max_model_len=64, max_num_seqs=4, **options))


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A recorder without a GPU; the sizes that were asked of it."""
    made: list[str] = []

    def record(settled, profile, events) -> Tables:
        sizes = settled.resolved.config.capture_sizes
        made.append(",".join(map(str, sizes)))
        blobs = {f"table/recorded.{size}.{size}.0": b"table" for size in sizes}
        info = {"recorded": [{"tokens": size} for size in sizes], "device": DEVICE, "cuda": "13.0"}
        return Tables(blobs, info)

    monkeypatch.setattr(recorded, "record_model", record)
    return made


def built(store: Store, shapes: str, compile: str = "none"):
    return build(asked(shapes, compile), store, NullEvents(), Counters())


@pytest.mark.parametrize("mode", ["none", "stock"])
def test_a_recorded_artifact_names_its_gpu_and_its_player(
    tmp_path: Path, recordings: list[str], mode: str
) -> None:
    manifest = built(Store.open(tmp_path), "1,2", mode).loaded.manifest
    assert manifest.host_rules == {
        "loader": "Player",
        "arch": "sm_90",
        "driver": "13000",
        "tables": "2",
    }
    plan = dict(manifest.plan_key)
    assert plan["recorded.device"] == "NVIDIA H200"
    assert plan["recorded.cuda"] == "13.0"
    assert sorted(manifest.blobs) == ["table/recorded.1.1.0", "table/recorded.2.2.0"]


def test_the_same_request_is_answered_from_the_store(tmp_path: Path, recordings: list[str]) -> None:
    store = Store.open(tmp_path)
    assert not built(store, "1,2").reused
    assert built(store, "1,2").reused
    assert recordings == ["1,2"]


def test_other_sizes_are_recorded_anew(tmp_path: Path, recordings: list[str]) -> None:
    """A compiled artifact serves every size; of a recorded one each size was captured."""
    store = Store.open(tmp_path)
    built(store, "1,2")
    assert not built(store, "1,2,4").reused
    assert recordings == ["1,2", "1,2,4"]


def test_without_a_gpu_nothing_is_stored(tmp_path: Path) -> None:
    """In a process of its own: one process has one driver, and this one may have the double."""
    words = ("compile", "demo", "--compile", "none", "--target", "sm_90", "--dtype", "bf16")
    done = vcc(*words, "--json", store=tmp_path, VCC_LIBCUDA="/nowhere/libcuda.so.1")
    assert done.code == 3, done.text
    assert "only be recorded on a GPU" in done.json["error"]["what"]
    assert list(Store.open(tmp_path).entries()) == []
