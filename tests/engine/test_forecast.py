"""A forecast asks what a build asks: request, code key, plan key, each tier; and says how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.key_artifacts import asked, model_with, publish, with_code

from vcc.cache.errors import ConfigError, DeviceError, ModelError
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.forecast import Forecast, Work, forecast
from vcc.engine.models.source import open_source
from vcc.engine.request import Settled


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def hits(found: Forecast) -> dict[str, bool]:
    return {part.name: part.hit for part in found.parts}


def test_an_empty_store_has_nothing_and_no_history(store: Store) -> None:
    found = forecast(asked(), store)
    assert hits(found) == dict.fromkeys(("request", "code key", "plan key", "tier local"), False)
    assert found.work is Work.ALL
    assert found.missing
    assert found.estimate.seconds is None
    assert "no history" in found.estimate.basis
    assert not store.root.exists(), "nothing is written"


def test_what_was_built_just_so_leaves_nothing_to_do(store: Store) -> None:
    entry = publish(store, asked())
    found = forecast(asked(), store)
    assert set(hits(found).values()) == {True}
    assert {part.artifact for part in found.parts} == {entry.artifact}
    assert (found.work, found.missing, found.estimate.seconds) == (Work.NOTHING, False, 0.0)


def test_other_sizes_are_a_plan_over_code_that_is_there(store: Store) -> None:
    publish(store, asked())
    found = forecast(asked(config={"capture_sizes": [1, 2]}), store)
    assert hits(found) | {"tier local": False} == {
        "request": False,
        "code key": True,
        "plan key": False,
        "tier local": False,
    }
    assert found.work is Work.PLAN
    assert "config.capture_sizes" in found.part("plan key").detail


def test_a_request_may_hit_where_the_code_key_misses(store: Store) -> None:
    """A run boots it; a build here would compile anew, and the part says what differs."""
    wanted = asked()
    publish(store, wanted, **with_code(wanted, **{"version.triton": "3.6.0"}))
    found = forecast(wanted, store)
    assert (found.part("request").hit, found.part("code key").hit) == (True, False)
    assert found.part("code key").detail.endswith("differs in version.triton")
    assert found.work is Work.ALL


def test_each_tier_is_asked_alone(store: Store, tmp_path: Path) -> None:
    lower = Store.open(tmp_path / "lower")
    entry = publish(lower, asked())
    found = forecast(asked(), replace(store, lower=(lower.root, tmp_path / "absent")))
    assert found.part("tier local").hit is False
    assert found.part("tier lower 1").artifact == entry.artifact
    assert "is not there" in found.part("tier lower 2").detail
    assert found.part("request").hit
    assert found.work is Work.NOTHING


def test_a_remote_is_read_and_nothing_is_pulled(store: Store, tmp_path: Path) -> None:
    from vcc.cache.remote.source import Source

    far = Store.open(tmp_path / "far")
    entry = publish(far, asked())
    source = Source(f"file://{far.root}", store.gate)
    found = forecast(asked(), replace(store, remote=source))
    assert found.part("remote").artifact == entry.artifact
    assert found.work is Work.ALL
    assert not store.root.exists()
    gone = Source(f"file://{tmp_path}/nowhere", store.gate)
    part = forecast(asked(), replace(store, remote=gone)).part("remote")
    assert part.hit is False
    assert part.detail


def test_an_estimate_is_the_median_of_builds_of_this_model(store: Store) -> None:
    for seqs, seconds in ((4, 10.0), (5, 30.0), (6, 20.0)):
        publish(store, asked(max_num_seqs=seqs), seconds=seconds)
    found = forecast(asked(), store).estimate
    assert (found.seconds, found.basis) == (20.0, "3 builds of this model")


def test_an_estimate_of_another_model_takes_the_one_nearest_in_parameters(store: Store) -> None:
    def sized(layers: int, seconds: float) -> tuple[Settled, Entry]:
        source = model_with(num_hidden_layers=layers)
        from vcc.engine.models.bindings import expected_tensors
        from vcc.engine.models.tensor_info import TensorInfo

        tensors = {n: TensorInfo("float32", s) for n, s in expected_tensors(source.spec).items()}
        settled = asked(source=replace(source, name=f"of {layers}", tensors=tensors))
        return settled, publish(store, settled, seconds=seconds)

    sized(40, 90.0)
    sized(5, 25.0)
    found = forecast(asked(), store).estimate
    assert found.seconds == 25.0
    assert "of 5" in found.basis
    assert "parameters" in found.basis


def test_builds_for_another_platform_or_mode_are_no_history(store: Store) -> None:
    publish(store, asked(target="sm_90"))
    publish(store, asked(config={"mode": "none"}))
    assert forecast(asked(), store).estimate.seconds is None


def test_a_mode_that_stores_nothing_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"stock torch\.compile"):
        forecast(asked(config={"mode": "stock"}), store)


def test_what_a_build_would_find_out_is_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factory's module may register operators when it is imported; a decoder's build may not."""
    (tmp_path / "own_ops.py").write_text("from torch.nn import ReLU as make")
    monkeypatch.syspath_prepend(tmp_path)
    source = open_source("own_ops:make", shapes=("x=1-8",))
    found = forecast(asked(source=source, config={"splitting_ops": ["my::op"]}), store)
    assert found.notes == (
        "a build finds out whether own_ops:make gives a module: it runs code of yours",
        "a build finds out whether splitting op my::op exists: it runs code of yours",
    )
    limited = forecast(asked(source=source, max_model_len=64), store).notes
    assert limited[0].startswith("max_model_len = 64 has no effect")
    with pytest.raises(ModelError, match="inputs are not declared"):
        forecast(asked(source=open_source("own_ops:make")), store)
    assert forecast(asked(config={"splitting_ops": ["aten::mm"]}), store).notes == ()


def test_without_torch_it_says_that_nothing_can_be_built(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.engine.refusals.has_torch", lambda: False)
    found = forecast(asked(config={"splitting_ops": ["my::op"]}), store)
    assert found.notes == ("nothing can be built here: torch is not installed",)


def test_without_a_compiler_there_is_no_forecast(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settled = asked()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(DeviceError, match="cannot compile pieces"):
        forecast(settled, store)


def test_a_store_that_cannot_be_read_misses_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    found = forecast(asked(), Store.open(tmp_path / "store"))
    assert set(hits(found).values()) == {False}
    assert "store" in found.part("tier local").detail
