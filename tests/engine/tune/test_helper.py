"""The recording process on doubles of the driver, CUPTI and cuBLASLt."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_libraries import environment
from support.recorded_products import SHAPES, answered, record

from vcc.cache.care.leftovers import PREFIXES
from vcc.cache.errors import DeviceError, GraphError
from vcc.cache.process import Process
from vcc.engine import native
from vcc.engine.graphs.recorder import calls
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NodeKind, ParamKind, RegionKind
from vcc.engine.tune import command
from vcc.engine.tune.gpu import Gpu
from vcc.engine.tune.job import Answer, Job
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmStore

pytestmark = pytest.mark.skipif(
    native.library("vcc_abi") is None, reason="built without a compiler"
)


def test_products_become_tables_without_addresses(tmp_path: Path) -> None:
    answer = answered(tmp_path / "store")
    assert (answer.recorded, answer.kept, answer.refused) == (2, 0, ())
    assert answer.cublaslt == 130100
    assert answer.self_test is not None
    assert answer.self_test.passed
    entries = GemmStore(tmp_path / "store").entries(answer.gpu)
    assert [entry.shape for entry in entries] == sorted(SHAPES)
    plain, added = (decode(entry.table) for entry in entries)
    assert [(one.kind, one.index) for one in plain.regions] == [
        (RegionKind.OPERAND, index) for index in (0, 1, 3)
    ]
    assert [one.index for one in added.regions] == [0, 1, 2, 3]
    assert {one.alignment for one in (*plain.regions, *added.regions)} == {256}
    (node,) = plain.nodes
    pointers = [(p.offset, p.region) for p in node.params if p.kind is ParamKind.POINTER]
    assert pointers == [(0, 0), (8, 1), (16, 2), (24, 2)]
    (data,) = (p.value for p in node.params if p.kind is ParamKind.BYTES)
    assert data[40:44] == (1).to_bytes(4, "little")
    assert data[44:56] == bytes(12), "what nobody wrote is zero"
    assert data[56:64] == (7).to_bytes(8, "little")


@pytest.mark.parametrize("code", [1, 801])
def test_a_driver_need_not_know_every_launch_attribute(tmp_path: Path, code: int) -> None:
    fail = f"cuGraphKernelNodeGetAttribute:1:{code}"
    assert answered(tmp_path / "store", SHAPES[:1], fail=fail).recorded == 1


def test_a_driver_that_fails_at_a_launch_attribute_is_heard(tmp_path: Path) -> None:
    """Not read as an attribute that is not set."""
    found = record(tmp_path / "store", SHAPES[:1], fail="cuGraphKernelNodeGetAttribute:2:999")
    assert "cuGraphKernelNodeGetAttribute" in found["error"]["what"] + found["error"]["why"]


@pytest.mark.parametrize("mode", ["stack", "heap", "unwritten"])
def test_what_is_of_this_process_alone_becomes_zero(tmp_path: Path, mode: str) -> None:
    """Also where nothing that was recorded moves it."""
    answer = answered(tmp_path / "store", SHAPES[:1], lt=mode)
    (entry,) = GemmStore(tmp_path / "store").entries(answer.gpu)
    (node,) = decode(entry.table).nodes
    (data,) = (p.value for p in node.params if p.kind is ParamKind.BYTES)
    assert data[40:] == (1).to_bytes(len(data) - 40, "little")


def test_two_recordings_are_the_same_bytes(tmp_path: Path) -> None:
    one, other = (answered(tmp_path / name).gpu for name in ("a", "b"))
    first, second = (
        [entry.table for entry in GemmStore(tmp_path / name).entries(gpu)]
        for name, gpu in (("a", one), ("b", other))
    )
    assert first == second


def test_what_is_stored_is_not_recorded_again(tmp_path: Path) -> None:
    answered(tmp_path / "store")
    again = answered(tmp_path / "store", (*SHAPES, GemmShape(2, 64, 32, "float16")))
    assert (again.recorded, again.kept) == (1, 2)
    assert answered(tmp_path / "store", again=True).recorded == 2


def test_what_is_damaged_is_recorded_again(tmp_path: Path) -> None:
    answer = answered(tmp_path / "store")
    files = [one for one in (tmp_path / "store" / "v1" / "cas").rglob("*") if one.is_file()]
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    again = answered(tmp_path / "store")
    assert (again.recorded, again.kept) == (2, 0)
    assert len(GemmStore(tmp_path / "store").entries(answer.gpu)) == 2


def test_another_version_of_the_library_is_recorded_anew(tmp_path: Path) -> None:
    answered(tmp_path / "store")
    answer = answered(tmp_path / "store", lt_version="130200")
    assert answer.recorded == 2
    store = GemmStore(tmp_path / "store")
    assert set(store.self_tests(answer.gpu)) == {130100, 130200}
    assert store.known(answer.gpu, 130200) == set(SHAPES)


def test_a_split_sum_keeps_its_workspace_and_both_kernels(tmp_path: Path) -> None:
    answer = answered(tmp_path / "store", SHAPES[:1], lt="split")
    (entry,) = GemmStore(tmp_path / "store").entries(answer.gpu)
    table = decode(entry.table)
    assert [one.index for one in table.regions] == [0, 1, 3, 4]
    assert table.regions[-1].size == 4096
    assert [node.kind for node in table.nodes] == [NodeKind.KERNEL] * 2
    assert [kernel.function for kernel in table.kernels] == ["lt_main", "lt_reduce"]


@pytest.mark.parametrize(("mode", "workspace"), [("large", 0), ("hasty", 2 << 20)])
def test_of_two_choices_of_the_library_the_faster_is_kept(
    tmp_path: Path, mode: str, workspace: int
) -> None:
    """What takes more than torch lets it take is asked for a second time, with less."""
    answer = answered(tmp_path / "store", SHAPES[:1], lt=mode)
    assert answer.self_test is not None
    assert answer.self_test.passed, answer.self_test.why
    (entry,) = GemmStore(tmp_path / "store").entries(answer.gpu)
    assert entry.workspace == workspace


@pytest.mark.parametrize(
    ("mode", "why"),
    [("hidden", "depends on addresses"), ("host", "host callback"), ("none", "no algorithm")],
)
def test_products_that_cannot_be_stored_are_named(tmp_path: Path, mode: str, why: str) -> None:
    answer = answered(tmp_path / "store", lt=mode)
    assert answer.recorded == 0
    assert [one.shape for one in answer.refused] == list(SHAPES)
    assert why in answer.refused[0].why


def test_a_failed_self_test_keeps_its_result_and_no_product(tmp_path: Path) -> None:
    answer = answered(tmp_path / "store", lt="wrong")
    assert answer.self_test is not None
    assert not answer.self_test.passed
    assert "bytes differ" in answer.self_test.why
    store = GemmStore(tmp_path / "store")
    assert store.entries(answer.gpu) == ()
    assert not store.self_tests(answer.gpu)[130100].passed


@pytest.mark.parametrize(
    ("opening", "works"),
    [(calls.watch, "Triton matrix products"), (calls.open_cublaslt, "Triton kernels")],
)
def test_a_missing_library_says_what_works_and_what_to_install(
    opening: Callable[[list[str]], object], works: str
) -> None:
    with pytest.raises(DeviceError, match="is not on this machine") as caught:
        opening(["/nowhere/first.so", "/nowhere/second.so"])
    assert "/nowhere/first.so" in caught.value.why
    assert "/nowhere/second.so" in caught.value.why
    assert works in caught.value.hint
    assert "install" in caught.value.hint


def test_no_driver_is_a_device_error(tmp_path: Path) -> None:
    found = environment()
    answer = tmp_path / "answer.json"
    subprocess.run(
        [sys.executable, "-m", "vcc.engine.tune.helper", str(answer)],
        input=Job(tmp_path, SHAPES).text().encode(),
        env=found | {"VCC_LIBCUDA": "/nowhere/libcuda.so.1"},
        check=True,
    )
    assert json.loads(answer.read_text())["error"]["exit"] == 3


def test_the_answer_reads_back() -> None:
    gpu = Gpu("NVIDIA H200", 90, 132)
    answer = Answer(gpu, 130100, 1, 2, (), None, 0.5, 10)
    assert Answer.of_dict(json.loads(json.dumps(answer.as_dict()))) == answer


def test_the_folder_of_a_recording_that_is_killed_is_one_that_later_builds_remove(
    tmp_path, monkeypatch
):
    seen = []

    def ended(words, **named):
        seen.append(Path(words[-1]).parent)
        assert seen[0].is_dir()
        return subprocess.CompletedProcess(words, 1, b"", b"killed")

    monkeypatch.setattr(command.subprocess, "run", ended)
    with pytest.raises(GraphError, match="ended with 1: killed"):
        command.record_apart(Job(tmp_path, ()))
    owner = Process.parse(seen[0].name.removeprefix(PREFIXES[0]))
    assert str(owner) == str(Process.own())
    assert not seen[0].exists()
