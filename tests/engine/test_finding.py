"""The look-up of a run: exact keys on demand, a noted miss, and what the store lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.key_artifacts import asked, publish, with_code

from vcc.cache.errors import DeviceError, MissingArtifact
from vcc.cache.notes import last_lookup
from vcc.cache.store import Store
from vcc.engine.compile import versions
from vcc.engine.compile.keys import build_keys
from vcc.engine.exact import different
from vcc.engine.finding import find
from vcc.engine.runtime.player.device import Device
from vcc.engine.session import Session, open_session


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def test_what_a_build_here_would_make_is_exact(store: Store) -> None:
    entry = publish(store, asked())
    assert find(Session(asked(), store, exact=True)).entries == (entry,)


@pytest.mark.parametrize(
    "entries",
    [
        {"version.torch": "2.12.0"},
        {"version.cudnn": "9.1"},
        {"compiler": "clang++ 17.0"},
        {"vcc.source": "ab" * 32},
        {"pass.eliminate_noops": "0123"},
        {"inductor.cpp.simdlen": "128"},
        {"env.CXX": "g++-9"},
        {"version.triton": None},
        {"of.a.later.vcc": "1"},
    ],
    ids=str,
)
def test_one_factor_of_the_code_key_is_enough_to_be_inexact(
    store: Store, entries: dict[str, str | None]
) -> None:
    """A run takes it all the same unless exact keys are demanded."""
    entry = publish(store, asked(), **with_code(asked(), **entries))
    assert find(Session(asked(), store)).entries == (entry,)
    found = find(Session(asked(), store, exact=True))
    assert found.entries == ()
    assert f"artifact {entry.artifact[:12]} is not exact: {next(iter(entries))}" in found.why


def test_constants_are_no_difference_as_only_a_build_knows_them(store: Store) -> None:
    manifest = store.load(publish(store, asked())).manifest
    assert any(label.startswith("constant.") for label, _ in manifest.code_key)
    assert different(manifest, asked(), build_keys(asked())) == ()


def test_fields_that_a_run_leaves_open_count_when_it_must_be_exact(store: Store) -> None:
    entry = publish(store, asked(max_num_seqs=4))
    assert find(Session(asked(), store)).entries == (entry,)
    assert "model.max_num_seqs" in find(Session(asked(), store, exact=True)).why


def test_an_exact_entry_is_found_behind_a_newer_one_that_is_not(store: Store) -> None:
    exact = publish(store, asked(), created=1)
    publish(store, asked(), created=2, **with_code(asked(), **{"version.torch": "2.12.0"}))
    assert find(Session(asked(), store, exact=True)).entries == (exact,)


def test_a_miss_is_noted_for_explain(store: Store) -> None:
    publish(store, asked(dtype="fp32"))
    settled = asked(config={"cuda_graph_mode": "full"})
    with pytest.raises(MissingArtifact):
        open_session(Session(settled, store, require_warm=True))
    noted = last_lookup(store.root)
    assert noted is not None
    assert noted.model == "demo"
    assert noted.wanted == {"config.cuda_graph_mode": "full"}
    assert dict(noted.base)["model.dtype"] == "bf16"
    assert dict(noted.identity) == dict(settled.request.source.model_key())


def test_a_store_that_is_not_there_is_not_made_for_a_note(store: Store) -> None:
    with pytest.raises(MissingArtifact):
        open_session(Session(asked(), store, require_warm=True))
    assert not store.root.exists()


def test_without_torch_a_miss_builds_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "has_torch", lambda: False)
    with pytest.raises(DeviceError, match="cannot be booted here") as error:
        open_session(Session(asked(), store))
    assert error.value.why == "the store is empty, and without torch none can be built"


def no_build(*_: object) -> None:
    raise AssertionError("nothing may be built")


def test_without_a_gpu_nothing_is_built_for_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCC_LIBCUDA", "/nowhere/libcuda.so.1")
    monkeypatch.setattr("vcc.engine.session._built", no_build)
    with pytest.raises(DeviceError, match="cannot be booted here, so it is not built") as error:
        open_session(Session(asked(target="sm_90"), store))
    assert error.value.why.startswith("the target is sm_90; cannot use the CUDA driver library")
    assert f"vcc compile demo --target sm_90 --cache-dir {store.root}" in error.value.hint
    with pytest.raises(AssertionError, match="nothing may be built"):
        open_session(Session(asked(), store))


@pytest.mark.parametrize(("arch", "built"), [("sm_90", True), ("sm_80", False)])
def test_a_gpu_of_the_target_is_built_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, arch: str, built: bool
) -> None:
    made = Device(1, 0, "a GPU", arch, 13000, 1 << 30)
    monkeypatch.setattr("vcc.engine.runtime.player.device.open_device", lambda: made)
    monkeypatch.setattr("vcc.engine.session._built", no_build)
    said = "nothing may be built" if built else "cannot be booted here"
    with pytest.raises(AssertionError if built else DeviceError, match=said):
        open_session(Session(asked(target="sm_90"), store))


def test_another_tensor_parallel_size_never_answers(store: Store) -> None:
    """F104, at the level of the request: layouts are in the base, which is always stated."""
    entry = publish(store, asked())
    fields = {**entry.fields, "parallel.tp": "2"}
    publish(store, asked(), request=tuple(sorted(fields.items())))
    assert find(Session(asked(), store)).entries == (entry,)
    none = replace(store, root=store.root.with_name("other"))
    publish(none, asked(), request=tuple(sorted(fields.items())))
    found = find(Session(asked(), none))
    assert found.entries == ()
    assert "parallel.tp: found '2', wanted '1'" in found.why
