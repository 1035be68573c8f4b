"""The cubins: no warning, no spilled register, as the index says, and the same bytes anywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.sources import ROOT

from vcc.cache.digest import Digest
from vcc.engine.graphs.cubin import read_cubin
from vcc.engine.ops.cuda import cubins
from vcc.engine.ops.cuda.table import BUILDERS

KERNELS = ROOT / "csrc" / "kernels"
FEW = ("kv_write", "topk_softmax")
"""Operators that compile in a second each."""

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")


def nvcc() -> str:
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        pytest.skip("no nvcc")
    return found


def checkout(place: Path, operators: tuple[str, ...]) -> Path:
    """A copy of what the kernels' build reads, with some operators only."""
    shutil.copytree(KERNELS, place / "csrc" / "kernels")
    for path in (place / "csrc" / "kernels").glob("*.cu"):
        if path.stem not in operators:
            path.unlink()
    for folder in ("engine", "cache"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return place / "csrc" / "kernels" / "compile.py"


def compile_kernels(script: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), "--nvcc", nvcc(), "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)


def test_every_operator_of_the_table_has_a_source_and_none_is_left_over() -> None:
    assert {path.stem for path in KERNELS.glob("*.cu")} == set(BUILDERS)


def test_another_folder_gives_the_same_bytes_without_a_warning(tmp_path: Path) -> None:
    first = compile_kernels(checkout(tmp_path / "a", FEW), tmp_path / "out a", "--strict", "sm_90a")
    assert first.returncode == 0, first.stderr
    again = compile_kernels(checkout(tmp_path / "b c", FEW), tmp_path / "b c" / "out", "sm_90a")
    assert again.returncode == 0, again.stderr
    for name in (*(f"{op}.cubin" for op in FEW), "index.json"):
        ours = (tmp_path / "out a" / "sm_90a" / name).read_bytes()
        assert ours == (tmp_path / "b c" / "out" / "sm_90a" / name).read_bytes()
        assert str(tmp_path).encode() not in ours


def test_a_kernel_that_does_not_compile_is_named_and_leaves_no_index(tmp_path: Path) -> None:
    script = checkout(tmp_path, FEW)
    source = script.with_name("kv_write.cu")
    source.write_text(source.read_text() + "\n#error broken on purpose\n")
    done = compile_kernels(script, tmp_path / "out", "sm_90a")
    assert done.returncode == 1
    assert "kv_write.cu" in done.stderr
    assert "broken on purpose" in done.stderr
    assert not (tmp_path / "out" / "sm_90a" / "index.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_compiles_for_every_architecture(tmp_path: Path, arch: str) -> None:
    """What `make cross` does."""
    done = compile_kernels(KERNELS / "compile.py", tmp_path, "--strict", arch)
    assert done.returncode == 0, done.stderr
    check(cubins.index(arch, tmp_path))


@pytest.fixture(scope="module")
def installed() -> cubins.Index:
    """The cubins of this install."""
    if why := cubins.missing("sm_90"):
        pytest.skip(why)
    return cubins.index("sm_90")


def check(index: cubins.Index) -> None:
    """An index is what its cubins are, and no kernel uses local memory: nothing was spilled."""
    assert set(index.cubins) == set(BUILDERS)
    for op, entry in index.cubins.items():
        data = cubins.read(index, op)
        assert Digest.of(data).hex == entry.sha256
        cubin = read_cubin(data)
        assert cubin.arch == int(re.sub(r"\D", "", index.arch))
        assert set(cubin.functions) == set(entry.symbols)
        for name, function in cubin.functions.items():
            assert name.startswith("vcc_")
            assert function.stack == 0, f"{name} spills"
            told = entry.symbols[name]
            assert (function.threads, function.registers) == (told.threads, told.registers)
            assert (function.shared, function.param_bytes) == (told.shared, told.param_bytes)
            assert told.threads * told.registers <= 65536


def test_the_installs_index_is_what_its_cubins_are(installed: cubins.Index) -> None:
    check(installed)


def test_rows_of_common_widths_leave_room_for_many_blocks(installed: cubins.Index) -> None:
    """Four blocks of 256 threads a multiprocessor, so that memory has enough to do."""
    for op in ("rms_norm", "fused_add_rms_norm", "rms_norm_quant", "fused_add_rms_norm_quant"):
        for kind in ("bf16", "fp16"):
            assert installed.cubins[op].symbols[f"vcc_{op}_{kind}"].registers <= 64


def test_the_installs_cubins_are_of_these_sources(installed: cubins.Index) -> None:
    """Else tests on a device would try other kernels than the ones that are read here."""
    made = installed.folder / "index.json"
    newest = max(path.stat().st_mtime for path in (*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh")))
    if made.stat().st_mtime < newest:
        pytest.skip("sources are newer than the install: make install")
    assert json.loads(made.read_text())["arch"] == "sm_90a"


def configured(tmp_path: Path, *options: str) -> str:
    """What the native build says when it is configured, its words on one line."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if cmake is None or not (shutil.which("c++") or shutil.which("g++")):
        pytest.skip("no CMake or no C++ compiler")
    place = ("-S", str(ROOT / "csrc"), "-B", str(tmp_path), "-DVCC_TORCH_DIR=/nonexistent")
    command = [cmake, *place, f"-DPython_EXECUTABLE={sys.executable}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("compiler", "why"),
    [("", "no nvcc found"), ("/bin/false", "/bin/false cannot compile for sm_90a")],
)
def test_without_a_working_nvcc_the_install_says_what_is_not_there(
    tmp_path: Path, compiler: str, why: str
) -> None:
    said = configured(tmp_path, f"-DVCC_NVCC={compiler}")
    assert said.count(why) == 1
    assert "forward_cuda is not available" in said
    assert "Triton's kernels or in plain torch instead" in said
    assert "Put nvcc of CUDA 12 or later on PATH and reinstall" in said


def test_kernels_can_be_left_out(tmp_path: Path) -> None:
    said = configured(tmp_path, "-DVCC_KERNELS=OFF")
    assert "without CUDA kernels, as VCC_KERNELS is OFF" in said
