"""The build from request to entry: what is counted, reused, told, refused. No compiler runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.builds import MODEL
from support.flow import ask, kept_environment
from support.stores import blob_path

from vcc.cache import roots
from vcc.cache.errors import CompileError, ConfigError, StorageError
from vcc.cache.store import Store
from vcc.engine.compile import pool
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.monitor import Counters
from vcc.engine.pipeline import build
from vcc.engine.request import Built
from vcc.engine.torch_shim import preload
from vcc.engine.types import CompiledPiece, Piece


class Heard:
    """Events as lists."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.notes: list[str] = []

    def stage_started(self, stage: str, total: int = 0) -> None:
        self.stages.append(f"{stage} {total}" if total else stage)

    def stage_finished(self, stage: str, seconds: float) -> None:
        assert seconds >= 0

    def progress(self, item: str, state: str) -> None: ...

    def note(self, reason: str) -> None:
        self.notes.append(reason)


def stand_in(
    pieces: Sequence[Piece], options: Mapping[str, Any], jobs: int, events: Any, *_: Any
) -> tuple[CompiledPiece, ...]:
    return tuple(CompiledPiece(p.id, b"\x7fELF" + p.id.encode(), None, None, 0.1) for p in pieces)


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pool, "compile_pieces", stand_in)
    monkeypatch.setattr(preload, "preload_inductor", lambda level: None)
    with kept_environment():
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "small", raising=False)
    return tmp_path


def run(store: Path, *, config: str | None = None, **options: Any) -> tuple[Built, Counters, Heard]:
    """Build the small module."""
    asked = ask("small:make", config=config, **{"inputs": ("x=1-64x48",), **options})
    counters, heard = Counters(), Heard()
    opened = Store.open(store, on_damage=lambda _: None)
    return build(asked, opened, heard, counters), counters, heard


def test_a_cold_build_goes_through_every_stage_once(folder: Path) -> None:
    built, counters, heard = run(folder / "store")
    assert heard.stages == ["trace", "passes", "partition", "compile 1", "publish"]
    expected = {"traces": 1, "pieces": 1, "unique_pieces": 1, "compiles": 1, "misses": 1, "hits": 0}
    assert {name: counters[name] for name in expected} == expected
    assert built.entry is not None
    assert (built.reused, built.trouble) == (False, "")
    names = {name.partition("/")[0] for name in built.loaded.manifest.blobs}
    assert names == {"program", "piece", "constant"}


def test_the_manifest_tells_what_was_done_and_why(folder: Path) -> None:
    info = run(folder / "store")[0].loaded.manifest.info
    assert info["inputs"] == ["x=1-64x48"]
    names = [p["name"] for p in info["passes"]]
    on = {rule.name for rule in PASS_RULES if rule.from_level and not rule.needs_ops}
    assert set(names) >= on
    assert all(
        {"matches", "refused", "skipped", "saved", "needs"} <= set(p) for p in info["passes"]
    )
    assert [p["calls"] for p in info["pieces"]] == [1]
    assert set(info["stages"]) == {"trace", "passes", "partition", "compile"}
    assert any(reason.startswith("splitting_ops") for reason in info["reasons"])


def test_the_second_build_compiles_nothing(folder: Path) -> None:
    run(folder / "store")
    built, counters, heard = run(folder / "store")
    assert built.reused
    assert heard.stages == []
    assert (counters["hits"], counters["traces"], counters["compiles"]) == (1, 0, 0)


def test_other_capture_sizes_keep_the_code(folder: Path) -> None:
    """C4: a new manifest over the same blobs."""
    first, _, _ = run(folder / "store")
    second, counters, heard = run(folder / "store", shapes="1,2")
    assert second.reused
    assert heard.stages == ["publish"]
    assert counters["compiles"] == 0
    one, two = first.loaded.manifest, second.loaded.manifest
    assert one.code_key == two.code_key
    assert one.plan_key != two.plan_key
    blobs = [{n: b.sha256 for n, b in manifest.blobs.items()} for manifest in (one, two)]
    assert blobs[0] == blobs[1]
    assert two.info["compilation"]["capture_sizes"] == [1, 2]
    assert (first.planned, second.planned) == (False, True)


def test_a_plan_that_is_there_is_found_behind_newer_ones(folder: Path) -> None:
    first, _, _ = run(folder / "store")
    run(folder / "store", shapes="1,2")
    again, _, heard = run(folder / "store")
    assert first.entry is not None
    assert again.entry is not None
    assert again.entry.artifact == first.entry.artifact
    assert (again.planned, heard.stages) == (False, [])


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "bf16"},
        {"config": '{"pass_config": {"eliminate_noops": false}}'},
        {"config": '{"inductor_config": {"cpp.simdlen": 128}}'},
        {"compile": "vcc", "level": 1},
    ],
    ids=str,
)
def test_what_changes_code_is_compiled_again(folder: Path, change: dict[str, Any]) -> None:
    run(folder / "store")
    _, counters, _ = run(folder / "store", **change)
    assert counters["compiles"] == (0 if "level" in change else 1)


def test_an_edit_of_the_model_is_compiled_again(folder: Path) -> None:
    """F101: the model's source is part of the request."""
    run(folder / "store")
    (folder / "small.py").write_text(MODEL.replace("gelu", "relu"))
    _, counters, _ = run(folder / "store")
    assert counters["hits"] == 0


def test_a_damaged_artifact_is_told_and_rebuilt(folder: Path) -> None:
    first, _, _ = run(folder / "store")
    blob = next(b for n, b in first.loaded.manifest.blobs.items() if n.endswith(".so"))
    path = blob_path(folder / "store", blob.sha256)
    path.chmod(0o600)
    path.write_bytes(b"x" * blob.size)
    built, counters, heard = run(folder / "store")
    assert any("is damaged and rebuilt" in note for note in heard.notes)
    assert counters["compiles"] == 1
    assert not built.reused
    built.loaded.read_all()


def test_a_store_that_cannot_be_written_costs_the_storing_and_not_the_build(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4."""

    def full(*_: Any) -> None:
        raise StorageError("the disk is full", "no space left on device")

    monkeypatch.setattr(Store, "publish", full)
    built, counters, _ = run(folder / "store")
    assert built.entry is None
    assert "no space left" in built.trouble
    assert counters["compiles"] == 1
    assert set(built.loaded.read_all()) == set(built.loaded.manifest.blobs)


def test_an_entry_that_cannot_be_read_back_is_used_from_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: Any) -> None:
        raise StorageError("input/output error")

    monkeypatch.setattr(Store, "load", unreadable)
    built, _, _ = run(folder / "store")
    assert "input/output error" in built.trouble
    assert built.loaded.read_all()


def test_after_a_build_the_store_is_kept_small_and_what_was_built_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, _ = run(folder / "store")
    roots.release()  # as if the first build was another process
    monkeypatch.setenv("VCC_MAX_SIZE", "1B")
    other = '{"pass_config": {"eliminate_noops": false}}'  # other code: the first is not read
    second, _, heard = run(folder / "store", config=other)
    stored = [entry.artifact for entry in Store.open(folder / "store").entries()]
    assert first.entry is not None
    assert second.entry is not None
    assert stored == [second.entry.artifact]
    assert any("VCC_MAX_SIZE: evicted 1 artifacts" in note for note in heard.notes)
    assert second.loaded.read_all()


@pytest.mark.parametrize("what", ["find", "load", "publish"])
def test_trouble_of_a_strict_store_ends_the_build(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def trouble(*_: Any, **__: Any) -> None:
        raise StorageError("input/output error")

    run(folder / "store")
    monkeypatch.setattr(Store, what, trouble)
    monkeypatch.setenv("VCC_STRICT", "1")
    with pytest.raises(StorageError, match="input/output error"):
        run(folder / "store", max_num_seqs=4)


def test_a_splitting_op_that_does_not_exist_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="splitting op vcc::paged_atention does not exist"):
        run(folder / "store", config='{"splitting_ops": ["vcc::paged_atention"]}')
    assert list(Store.open(folder / "store").entries()) == []


def test_a_splitting_op_that_the_model_lacks_is_told(folder: Path) -> None:
    _, _, heard = run(folder / "store", config='{"splitting_ops": ["vcc::kv_write", "aten::gelu"]}')
    assert heard.notes == ["splitting op vcc::kv_write is not in this model: nothing is cut there"]
    _, counters, quiet = run(folder / "other")
    assert quiet.notes == [], "nobody named the default cuts"
    assert counters["pieces"] == 1


def test_a_cut_makes_pieces(folder: Path) -> None:
    _, counters, _ = run(folder / "store", config='{"splitting_ops": ["aten::gelu"]}')
    assert (counters["pieces"], counters["unique_pieces"]) == (2, 2)


def test_a_failing_stage_leaves_no_folder_and_no_entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    (folder / "tmp").mkdir()

    def fails(*_: Any) -> None:
        raise CompileError("piece is odd")

    monkeypatch.setattr(pool, "compile_pieces", fails)
    with pytest.raises(CompileError, match="piece is odd"):
        run(folder / "store")
    assert os.listdir(folder / "tmp") == []
    assert list(Store.open(folder / "store").entries()) == []


def test_what_is_kept_can_be_read(folder: Path) -> None:
    info = run(folder / "store", keep=folder / "kept")[0].loaded.manifest.info
    names = sorted(path.name for path in (folder / "kept").iterdir())
    assert names[:2] == ["00-traced.py", "01-eliminate_noops.py"]
    assert [name[3:-3] for name in names if name[:2].isdigit()][1:] == [
        report["name"] for report in info["passes"] if not report["skipped"]
    ]
    (identity,) = (folder / "kept").glob("piece-*.txt")
    assert identity.read_text().startswith("option 'pass.eliminate_noops' = ")
    _, _, heard = run(folder / "store", keep=folder / "again")
    assert heard.notes == ["nothing to keep: the code was there already"]


def test_a_variable_that_the_model_reads_is_told_and_kept_in_the_manifest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key can know it, so it is not silent."""
    (folder / "small.py").write_text(f"import os\nWIDTH = os.environ.get('SMALL_WIDTH'){MODEL}")
    monkeypatch.setenv("SMALL_WIDTH", "3")
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    built, _, heard = run(folder / "store")
    assert built.loaded.manifest.info["environment"]["unlisted"] == {"SMALL_WIDTH": ["small"]}
    assert any("SMALL_WIDTH is set and was read by small" in note for note in heard.notes)
    assert any("TORCHINDUCTOR_MAX_AUTOTUNE is set and kept from" in note for note in heard.notes)
