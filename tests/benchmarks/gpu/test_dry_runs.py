"""The GPU benchmarks as far as they go without a device: on doubles of driver, CUPTI and cuBLASLt.

A typing error costs minutes of a device. Figures mean nothing here; that each script runs, that
the products of its model are found in the store, and that a result is written, does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fake_libraries import environment

from vcc.engine import native

pytestmark = pytest.mark.skipif(
    native.library("vcc_abi") is None, reason="built without a compiler"
)

HERE = Path(__file__).parent
MEMORY = 8 << 30

DRY = """
import sys
sys.path[:0] = [{here!r}]
import {script}, common, products
common.RESULTS = common.Path(common.OUT)
real = common.python
def python(script, *words, **more):
    if script == "peer_copy.py":
        return common.Done(0, 0.0, '{{"copy_gb_per_second": 1.0}}', "")
    return real(script, *words, **more)
{script}.python = python
sys.argv = [{script!r}, *sys.argv[1:]]
sys.exit({script}.main())
"""
"""A benchmark without its peers in torch, which need a device."""


class Bench:
    """Scripts on the doubles, with models and store in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.environment = environment(memory=str(MEMORY)) | {
            "VCC_BENCH_MODELS": str(folder / "models"),
            "VCC_BENCH_OUT": str(self.out),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """A Python process."""
        return subprocess.run(
            [sys.executable, *map(str, words)],
            env=self.environment,
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )

    def result(self, script: str, name: str, *words: object) -> dict[str, Any]:
        """What a benchmark writes; missed limits are no failure of a dry run."""
        done = self.run("-c", DRY.format(here=str(HERE), script=script), *words)
        assert done.returncode in (0, 1), done.stderr[-4000:]
        assert "Traceback" not in done.stderr, done.stderr[-4000:]
        written = self.out / f"gpu-{name}.json"
        assert written.exists(), done.stderr[-4000:] or done.stdout[-4000:]
        found: dict[str, Any] = json.loads(written.read_text())
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def rows(found: Mapping[str, Any]) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in found["rows"]}


def test_decode_is_timed_with_the_products_of_the_store(bench: Bench) -> None:
    """Of each step: a boot of the benchmark finds under its keys what tune has recorded for it."""
    words = ("--size", "tiny", "--ways", "--decode", 1, 8, "--prefill", 128, "--times", 4)
    found = bench.result("bench_decode", "decode-tiny", *words)
    tune, told = found["tune"], rows(found)
    assert tune["stored"] == tune["choices"]["cublaslt"] + tune["choices"].get("triton", 0)
    assert tune["without_entry"] == 0
    assert told["products in the GEMM store"] == tune["stored"] > 100
    assert told["products from the GEMM store, all steps"] > 0
    for step, routes in found["alone"]["routes"].items():
        assert told[f"step of {step}: products from the GEMM store"] == routes["store"]
        assert sum(routes.values()) == 9  # four of each of two layers, and the head


@pytest.mark.slow  # another mode is another build
def test_graphs_are_built_of_the_same_artifact_and_products(bench: Bench) -> None:
    words = ("--sizes", "tiny", "--threads", 2, "--repeat", 1)
    told = rows(bench.result("bench_graphs", "graphs", *words))
    assert told["tiny: descriptors"] >= 51
    assert told["tiny: of these some step takes"] > 0
    assert told["tiny: products offered by the GEMM store"] == told["products in the GEMM store"]


def test_a_boot_is_reported_line_by_line(bench: Bench) -> None:
    words = ("--sizes", "tiny", "--peers", "--repeat", 1, "--golden", "off")
    found = bench.result("bench_boot", "boot-tiny", *words)  # the double computes nothing
    assert rows(found)["compiles and traces"] == 0
    assert rows(found)["heavy modules imported"] == 0
    assert rows(found)["ledger against wall"] <= 0.05


def test_weights_are_read_by_every_setting(bench: Bench) -> None:
    words = ("--size", "tiny", "--readers", 2, 1, "--slots", 2)
    assert rows(bench.result("bench_weights", "weights", *words))["heavy modules imported"] == 0


@pytest.mark.parametrize(
    "script", ["bench_experts", "bench_norm_linear", "bench_ops", "bench_scaled_mm"]
)
def test_scripts_that_need_torch_on_a_device_say_what_they_would_time(
    bench: Bench, script: str
) -> None:
    done = bench.run(HERE / f"{script}.py", "--dry", "--tokens", 8)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    if script == "bench_experts":
        assert found["ours"] <= 1e-5
        assert found["grouped"] <= 2e-2
        assert found["fp8"] <= 1.01 * found["fp8_plain"] <= 0.1
        # Torch has the peer's function, and no CPU: the row of a missing peer says so.
        assert found["fp8_grouped"].startswith(
            "NotImplementedError: Could not run 'aten::_scaled_g"
        )


def test_every_benchmark_is_a_part_of_make_gpu_bench_and_says_what_it_takes(bench: Bench) -> None:
    text = (HERE.parents[2] / "Makefile").read_text()
    (line,) = [one for one in text.splitlines() if one.startswith("GPU_PARTS := ")]
    scripts = {path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py")}
    assert set(line.removeprefix("GPU_PARTS := ").split()) == scripts
    for name in sorted(scripts):
        done = bench.run(HERE / f"bench_{name}.py", "--help")
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_forwards_are_timed_with_the_products_of_the_store(bench: Bench) -> None:
    words = ("--kinds", "tiny", "--batches", 1, 2, "--varying", "tiny", "--firsts", "tiny")
    found = bench.result("bench_forwards", "forwards", *words, "--repeat", 1, "--seconds", 0.1)
    told = rows(found)
    for cell, mine in found["vcc"].items():
        assert mine["heavy"] == [], "an error would have no such entry"
        assert mine["routes"] == {"store": 7}
        assert told[f"{cell}: call"] == mine["call_us"] > 0
        assert told[f"{cell}: vcc / default"] is None, "there is no torch for a device here"
    assert set(found["vcc"]) == {"tiny 1", "tiny 2", "tiny 1 of N@1-2", "tiny 2 of N@1-2"}
    assert told["tiny 1: heavy modules imported"] == 0


@pytest.mark.slow
def test_steps_with_fusions_are_timed_beside_steps_without(bench: Bench) -> None:
    words = ("--only", "decode", "--size", "tiny", "--decode", 1, "--times", 4)
    told = rows(bench.result("bench_ops", "ops", *words))
    for name in ("without", "csrc", "triton"):
        assert told[f"{name}: products from the GEMM store, all steps"] > 0
    assert told["decode 1: csrc / without"] > 0
