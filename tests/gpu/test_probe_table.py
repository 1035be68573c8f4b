"""The node-table probe: built here for a GPU that is not there, played where there is one.

Only one piece is compiled here; `tests/gpu/probe/interpret.py` runs a whole fp32 table on the CPU
by Triton's interpreter.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

PROBE = Path(__file__).parent / "probe"
KEPT = Path(os.environ.get("VCC_PROBE_DIR", "build/gpu-probe"))
"""A folder with `table/` and `reference.npz`, built elsewhere and brought to the device."""


def run_script(name: str, *arguments: object) -> str:
    """Run a script of the probe in a process of its own: the shim changes torch for good."""
    command = [sys.executable, "-W", "ignore", str(PROBE / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:] or done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def probe() -> dict[str, Any]:
    """The probe's modules that need neither torch nor a device."""
    sys.path.insert(0, str(PROBE))
    import cubins
    import fx_nodes
    import steps
    import table

    sys.path.remove(str(PROBE))
    return {"cubins": cubins, "steps": steps, "table": table, "fx_nodes": fx_nodes}


@pytest.fixture(scope="module")
def one_piece(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A table with the first unique piece, all splitting ops and all gemm kernels, for sm_90."""
    folder = tmp_path_factory.mktemp("probe")
    out = run_script(
        "build_table.py", "--pieces", 1, "--out", folder / "table", "--scratch", folder / "scratch"
    )
    return folder / "table", json.loads(out)


def test_a_piece_becomes_launches_and_gemms_only(one_piece) -> None:
    figures = one_piece[1]
    assert set(figures["nodes_of_unique_pieces"]) <= {"buffer", "view", "launch", "gemm"}
    assert figures["unique_pieces"] == 1
    assert figures["bytes"] < 400_000


def test_a_table_is_data(one_piece) -> None:
    files = list(one_piece[0].iterdir())
    assert {f.suffix for f in files} == {".json", ".cubin", ".bin"}
    heads = {f.read_bytes()[:20] for f in files if f.suffix == ".cubin"}
    assert all(head[:4] == b"\x7fELF" and head[18:20] == b"\xbe\x00" for head in heads)


def test_every_kernel_is_in_its_cubin_with_the_parameters_that_are_bound(one_piece, probe) -> None:
    table, blobs = probe["table"].read(one_piece[0])
    for digest, kernel in table.kernels.items():
        declared = probe["cubins"].declared_bytes(blobs[digest], kernel.function)
        assert declared == probe["table"].parameter_bytes(kernel), kernel.function


@pytest.mark.parametrize(("tokens", "seqs"), [(1, 1), (7, 3), (64, 64), (512, 64)])
def test_sizes_evaluate_at_both_ends_of_their_ranges(one_piece, probe, tokens, seqs) -> None:
    table, _ = probe["table"].read(one_piece[0])
    step = probe["steps"].expand(table, {"T": tokens, "B": seqs, "K": 40})
    assert step.nodes
    for node in step.nodes:
        assert all(0 < size < 65536 for size in node.grid), table.kernels[node.kernel].function


def test_no_two_live_buffers_share_memory(one_piece, probe) -> None:
    table, _ = probe["table"].read(one_piece[0])
    sizes = {"T": 512, "B": 64, "K": 40}
    step, placement = probe["steps"].expand(table, sizes), probe["steps"].place(table, sizes)
    for node in step.nodes:
        homes = {w.home for w in node.words if not isinstance(w, int)} & set(placement.offsets)
        spans = sorted((placement.offsets[h], step.buffers[h]) for h in homes)
        for (start, size), (following, _) in pairwise(spans):
            assert start + size <= following


def test_a_size_outside_its_range_is_refused(one_piece, probe) -> None:
    table, _ = probe["table"].read(one_piece[0])
    with pytest.raises(probe["table"].Refused, match="T = 513"):
        probe["steps"].expand(table, {"T": 513, "B": 1, "K": 40})


def test_a_damaged_cubin_is_refused(one_piece, probe, tmp_path) -> None:
    for file in one_piece[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    victim = next(tmp_path.glob("*.cubin"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x01")
    with pytest.raises(probe["table"].Refused, match="damaged"):
        probe["table"].read(tmp_path)


def test_an_argument_that_is_not_bound_is_refused(one_piece, probe) -> None:
    table, _ = probe["table"].read(one_piece[0])
    op = table.ops["vcc::kv_write"]
    arguments = {name: value for name, value in op.launch.arguments.items() if name != "plane"}
    launch = msgspec.structs.replace(op.launch, arguments=arguments)
    ops = {**table.ops, "vcc::kv_write": msgspec.structs.replace(op, launch=launch)}
    with pytest.raises(probe["table"].Refused, match="plane"):
        probe["table"].check_table(msgspec.structs.replace(table, ops=ops))


def test_rounding_up_is_written_without_negative_numbers(probe) -> None:
    nodes = probe["fx_nodes"]
    assert nodes.times(-1, ["//", ["*", -3, "s0"], 2]) == ["//", ["+", ["*", 3, "s0"], 1], 2]
    with pytest.raises(probe["table"].Refused):
        nodes.times(-1, ["//", "s0", 2])


def missing_device() -> str:
    """Why no table can be played here; empty where one can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) on this machine"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "a CUDA driver but no device"
    return ""


@pytest.mark.gpu
def test_a_table_built_without_a_gpu_plays_without_torch(tmp_path) -> None:
    if why := missing_device():
        pytest.skip(why)
    if not (KEPT / "table" / "table.json").exists():
        pytest.skip(f"no table in {KEPT}: run build_table.py and reference.py first")
    run_script(
        "play_table.py",
        *("--table", KEPT / "table", "--reference", KEPT / "reference.npz"),
        *("--out", tmp_path / "report.json"),
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert all(report["verdict"].values()), report["verdict"]
