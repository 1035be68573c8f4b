"""Two sides differ in keys, host rules, blobs and info; each by label."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.key_artifacts import BLOBS, asked, made, model_with, publish, with_code

from vcc.cache.store import Store
from vcc.engine.compare import Comparison, Side, compare


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def stored(store: Store, settled, blobs=BLOBS, **changes) -> Side:  # type: ignore[no-untyped-def]
    entry = store.publish(made(settled, **changes), blobs)
    return Side.of_artifact(entry.artifact, store.load(entry))


def labels(found: Comparison) -> dict[str, set[str]]:
    return {
        name: {one.label for one in differences}
        for name, differences in found.sections.items()
        if differences
    }


def test_an_artifact_is_equal_to_itself(store: Store) -> None:
    side = stored(store, asked())
    found = compare(side, side)
    assert found.equal
    assert found.blobs is not None
    assert found.blobs.same == tuple(sorted(BLOBS))
    assert found.blobs.shared == sum(map(len, BLOBS.values()))


def test_what_differs_is_named_where_it_belongs(store: Store) -> None:
    first = stored(store, asked(max_num_seqs=4))
    second = stored(
        store,
        asked(dtype="fp32", max_num_seqs=4),
        host_rules={"loader": "TorchLoader", "torch": "2.12"},
    )
    found = compare(first, second)
    assert labels(found) == {
        "request": {"model.dtype"},
        "code key": {"model.dtype"},
        "host rules": {"cpu_level", "machine", "torch"},
        "info": {"model.dtype"},
    }
    (dtype,) = found.sections["request"]
    assert (dtype.found, dtype.wanted) == ("bf16", "fp32")


def test_blobs_are_told_by_name_and_bytes(store: Store) -> None:
    other = {**BLOBS, "piece/0.so": b"other", "piece/1.so": b"new"}
    del other["constant/inv_freq"]
    found = compare(stored(store, asked(), created=1), stored(store, asked(), other)).blobs
    assert found is not None
    assert (found.same, found.changed) == (("program",), ("piece/0.so",))
    assert (found.added, found.removed) == (("piece/1.so",), ("constant/inv_freq",))
    assert found.shared == len(BLOBS["program"])


def test_models_are_told_by_their_parts(store: Store) -> None:
    found = compare(stored(store, asked()), stored(store, asked(source=model_with(rms_norm_eps=1))))
    assert labels(found)["model"] == {"model.eps"}


def test_requests_are_compared_by_what_a_build_here_would_ask_for() -> None:
    first, second = (Side.of_request(asked(max_num_seqs=n)) for n in (4, 8))
    found = compare(first, second)
    assert found.blobs is None
    assert labels(found) == {
        "request": {"config.capture_sizes", "config.dynamic_shapes.seqs.max", "model.max_num_seqs"},
        "code key": {"config.dynamic_shapes.seqs.max", "model.max_num_seqs"},
        "plan key": {"config.capture_sizes"},
    }


def test_an_artifact_and_the_request_it_was_built_for_are_equal(store: Store) -> None:
    """Constants are known to the artifact only: no difference."""
    artifact = stored(store, asked())
    assert compare(artifact, Side.of_request(asked())).equal
    aged = stored(store, asked(), **with_code(asked(), **{"version.torch": "2.12.0"}))
    found = compare(aged, Side.of_request(asked()))
    assert labels(found) == {"code key": {"version.torch"}}
    assert not found.equal


def test_times_of_a_build_are_no_difference(store: Store) -> None:
    entries = [publish(store, asked(), seconds=s, created=c) for s, c in ((1.0, 5), (9.0, 6))]
    assert entries[0] != entries[1]
    assert compare(*(Side.of_artifact(e.artifact, store.load(e)) for e in entries)).equal
