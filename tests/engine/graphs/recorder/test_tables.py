"""From the folders of three captures to proven tables, on the driver's double.

The double copies and sets real bytes, so a model of copies can be recorded and replayed whole.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vcc.cache.errors import GraphError, VccError
from vcc.engine.graphs.recorder import process, samples
from vcc.engine.graphs.recorder.addresses import AGAIN, FIRST, NAMES, SECOND, Addresses
from vcc.engine.graphs.recorder.parts import WHOLE, Part, parts_text
from vcc.engine.graphs.recorder.plan import (
    IO,
    KV_CACHE,
    WORKSPACE,
    Descriptor,
    Recording,
    Slot,
    placed,
)
from vcc.engine.graphs.recorder.process import prove
from vcc.engine.graphs.recorder.tables import Tables, tables_of
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import RegionKind, Role, Segment, SegmentKind

PIECE, OP = SegmentKind.PIECE, SegmentKind.OP
ONLY = Descriptor(1, 1, False)
WIDTH = 64
USED = [256, 0, 512, 4096]
PLACES = {
    name: Addresses.at(start, name, (1 << 20,) * 4)
    for name, start in ((FIRST, 0x6000 << 32), (SECOND, 0x4000 << 32), (AGAIN, 0x6000 << 32))
}


def recording() -> Recording:
    io = (
        Slot("x", Role.INPUT, "float32", (WIDTH,)),
        Slot("output", Role.OUTPUT, "float32", (WIDTH,)),
    )
    weights = (Slot("w", Role.CONSTANT, "float32", (WIDTH,)),)
    return Recording(placed(weights), (), placed(io), (ONLY,))


def copies(bases: tuple[int, ...], through: int = 0) -> dict[str, Any]:
    """x goes to the workspace, and from there to the output."""
    io, space = bases[IO], bases[WORKSPACE] + through

    def copy(source: int, target: int) -> dict[str, Any]:
        plain = {"bytes": 4 * WIDTH, "source_memory": 2, "target_memory": 2, "plain": 1}
        return {"kind": "memcpy", "source": source, "target": target} | plain

    nodes = [copy(io, space), copy(space, io + 256)]
    return {"nodes": nodes, "edges": [[0, 1, 0, 0, 0]]}


def leave(folder: Path, *parts: tuple[SegmentKind, str, dict[str, Any]]) -> None:
    """What a capture leaves of a step."""
    told = [Part(kind, name, json.dumps(graph)) for kind, name, graph in parts]
    (folder / f"{ONLY.file}.json").write_text(parts_text(told))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    made = []
    for name in NAMES:
        folder = tmp_path / name
        (folder / "cubin").mkdir(parents=True)
        leave(folder, (PIECE, WHOLE, copies(PLACES[name].bases)))
        report = {"used": USED, "addresses": PLACES[name].as_dict()}
        (folder / "report.json").write_text(json.dumps(report))
        made.append(folder)
    first = made[0]
    batch = samples.batch(recording(), ONLY)
    (first / f"{ONLY.file}.out").write_bytes(batch["x"].tobytes())
    (first / f"{ONLY.file}.kv").write_text("[]")
    (first / "recording.json").write_text(recording().text())
    (first / "constant").mkdir()
    from vcc.engine.graphs.recorder.check_process import digest_of

    (first / "constant" / digest_of("w")).write_bytes(bytes(4 * WIDTH))
    return made[0], made[1], made[2]


def test_a_table_has_the_regions_tensors_and_sizes_of_its_step(
    folders: tuple[Path, Path, Path],
) -> None:
    tables = tables_of(recording(), folders)
    table = decode(tables.blobs[ONLY.blob])
    assert [region.kind for region in table.regions] == [
        *(RegionKind.WEIGHTS, RegionKind.KV_CACHE, RegionKind.IO, RegionKind.WORKSPACE)
    ]
    assert [region.size for region in table.regions] == USED
    assert {one.name: (one.role, one.region, one.offset) for one in table.tensors} == {
        "w": (Role.CONSTANT, 0, 0),
        "x": (Role.INPUT, 2, 0),
        "output": (Role.OUTPUT, 2, 256),
    }
    assert {one.name: (one.low, one.high) for one in table.symbols} == {
        "T": (1, 1),
        "B": (1, 1),
        "K": (1, 1),
    }
    assert tables.info["recorded"][0]["pointers"] == 4


def test_a_right_recording_passes_in_a_process_without_torch(
    folders: tuple[Path, Path, Path], fake_libraries: None
) -> None:
    tables = tables_of(recording(), folders)
    found = prove(recording(), tables, folders[0])
    assert found["wrong"] == []
    assert found["torch"] is False


def test_an_output_that_differs_is_refused_by_descriptor(
    folders: tuple[Path, Path, Path], fake_libraries: None
) -> None:
    (folders[0] / f"{ONLY.file}.out").write_bytes(bytes(4 * WIDTH))
    unsteady = tuple(f"1.1.0: node 0 (k), byte {8 * at}" for at in range(7))
    tables = replace(tables_of(recording(), folders), unsteady=unsteady)
    wrong = r"1\.1\.0: \d+ of 256 bytes differ; 1\.1\.0: node 0 \(k\), byte 0; .*; and 2 more words"
    with pytest.raises(GraphError, match=wrong):
        prove(recording(), tables, folders[0])


def test_a_model_that_reads_what_it_did_not_write_is_found(
    folders: tuple[Path, Path, Path], fake_libraries: None
) -> None:
    """In the captured process the memory happened to hold the right values; here it is poison."""
    for folder, name in zip(folders, NAMES, strict=True):
        graph = copies(PLACES[name].bases)
        graph = {"nodes": graph["nodes"][1:], "edges": []}
        leave(folder, (PIECE, WHOLE, graph))
    with pytest.raises(GraphError, match="bytes differ"):
        prove(recording(), tables_of(recording(), folders), folders[0])


@pytest.mark.parametrize("target", [256, 260])
def test_a_replay_that_writes_elsewhere_in_the_cache_is_found(
    folders: tuple[Path, Path, Path], fake_libraries: None, target: int
) -> None:
    """Though the output is right: torch's graph wrote the second row of keys, at byte 256."""
    cache = placed([Slot("kv_cache_0", Role.CACHE, "float32", (2, 2, WIDTH))])
    cached = replace(recording(), cache=cache)
    for folder, name in zip(folders, NAMES, strict=True):
        bases = PLACES[name].bases
        graph = copies(bases)
        kept = {**graph["nodes"][0], "target": bases[KV_CACHE] + target, "bytes": 128}
        graph = {"nodes": [*graph["nodes"], kept], "edges": [[0, 1, 0, 0, 0], [1, 2, 0, 0, 0]]}
        leave(folder, (PIECE, WHOLE, graph))
        report = {"used": [256, 1024, 512, 4096], "addresses": PLACES[name].as_dict()}
        (folder / "report.json").write_text(json.dumps(report))
    right = samples.block("float32", KV_CACHE)[:1024].tobytes()
    x = samples.batch(cached, ONLY)["x"].tobytes()
    right = right[:256] + x[:128] + right[384:]
    digests = [hashlib.sha256(half).hexdigest() for half in (right[:512], right[512:])]
    (folders[0] / f"{ONLY.file}.kv").write_text(json.dumps(digests))
    (folders[0] / "recording.json").write_text(cached.text())
    tables = tables_of(cached, folders)
    if target == 256:
        assert prove(cached, tables, folders[0])["wrong"] == []
        return
    with pytest.raises(
        GraphError, match="512 bytes of the KV cache from byte 0 on are not the same"
    ):
        prove(cached, tables, folders[0])


def test_captures_that_place_things_differently_are_refused(
    folders: tuple[Path, Path, Path],
) -> None:
    graph = copies(PLACES[SECOND].bases, through=512)
    leave(folders[1], (PIECE, WHOLE, graph))
    with pytest.raises(GraphError, match="node 0"):
        tables_of(recording(), folders)


def test_a_replay_that_fails_tells_what_was_zeroed(
    folders: tuple[Path, Path, Path], fake_libraries: None
) -> None:
    """As an illegal address does where a pointer became zero."""
    tables = replace(tables_of(recording(), folders), unsteady=("1.1.0: node 0 (k), byte 0",))
    broken = replace(tables, blobs={ONLY.blob: tables.blobs[ONLY.blob][:-8]})
    with pytest.raises(VccError, match=r"; 1\.1\.0: node 0 \(k\), byte 0$"):
        prove(recording(), broken, folders[0])


def test_a_checker_that_dies_is_an_error(
    folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    tables = Tables({ONLY.blob: b""}, {})
    with pytest.raises(GraphError, match="could not be checked"):
        prove(recording(), tables, folders[0])


def test_a_replay_without_end_is_an_error(
    folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kernel may wait for a flag that another run left in memory that is poison here."""
    waiting = tmp_path / "waiting"
    waiting.write_text("#!/bin/sh\nexec sleep 60\n")
    waiting.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(waiting))
    monkeypatch.setattr(process, "LONGEST", 0.2)
    with pytest.raises(GraphError, match="a recorded graph does not end"):
        prove(recording(), Tables({ONLY.blob: b""}, {}), folders[0])


def test_the_manifest_will_say_whose_kernels_there_are(folders: tuple[Path, Path, Path]) -> None:
    assert tables_of(recording(), folders).info["vendor_cubins"] == []


def in_parts(bases: tuple[int, ...]) -> list[tuple[SegmentKind, str, dict[str, Any]]]:
    """The two copies with a break between them, and an empty part behind it."""
    first, second = copies(bases)["nodes"]
    through = copies(bases, through=512)["nodes"]
    moved = {**second, "target": through[0]["target"]}
    last = through[1]
    return [
        (PIECE, WHOLE, {"nodes": [first], "edges": []}),
        (OP, "vcc::kv_write", {"nodes": [moved], "edges": []}),
        (PIECE, WHOLE, {"nodes": [], "edges": []}),
        (OP, "vcc::paged_attention", {"nodes": [last], "edges": []}),
    ]


def test_a_step_in_parts_is_one_table_with_a_segment_for_each(
    folders: tuple[Path, Path, Path], fake_libraries: None
) -> None:
    """W6: proven as a whole, in the same process without torch."""
    for folder, name in zip(folders, NAMES, strict=True):
        leave(folder, *in_parts(PLACES[name].bases))
    tables = tables_of(recording(), folders)
    table = decode(tables.blobs[ONLY.blob])
    assert table.segments == (
        Segment(PIECE, WHOLE, 1),
        Segment(OP, "vcc::kv_write", 1),
        Segment(OP, "vcc::paged_attention", 1),
    )
    assert table.edges == ()
    assert prove(recording(), tables, folders[0])["wrong"] == []


def test_captures_that_break_elsewhere_are_refused(folders: tuple[Path, Path, Path]) -> None:
    for folder, name in zip(folders, NAMES, strict=True):
        leave(folder, *in_parts(PLACES[name].bases))
    leave(folders[1], *in_parts(PLACES[SECOND].bases)[:2])
    with pytest.raises(GraphError, match="two captures of one step differ"):
        tables_of(recording(), folders)


def test_a_step_without_launches_is_refused(folders: tuple[Path, Path, Path]) -> None:
    for folder in folders:
        leave(folder, (PIECE, WHOLE, {"nodes": [], "edges": []}))
    with pytest.raises(GraphError, match="nothing was captured"):
        tables_of(recording(), folders)
