"""`vcc tune` on doubles of the driver, CUPTI and cuBLASLt."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_cuda.cubins import cubin
from support.fake_libraries import environment

from vcc.cache.digest import Digest
from vcc.cache.manifest import Manifest
from vcc.cache.store import Store
from vcc.engine import native
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.layout import FP8
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Gemm,
    Kernel,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    RegionKind,
    Segment,
    SegmentKind,
    Symbol,
    Variant,
)
from vcc.engine.tune.store import GemmStore, choices

pytestmark = pytest.mark.skipif(
    native.library("vcc_abi") is None, reason="built without a compiler"
)

CODE = cubin({"linear": (8, 8, 8, 8, 8, 4, 4, 4, 8, 8), "reduce": (8, 8, 8, 4, 4, 8, 8)})
SCALED = cubin(
    {"scaled_linear": (8, 8, 8, 8, 8, 8, 4, 8, 8), "spread_scales": (8, 8, 4, 4, 4, 8, 8)}
)
N, K, MOST = 64, 32, 512
BLOCKS_K, SPREAD_K = 512, 640


def step_table() -> NodeTable:
    digest = Digest.of(CODE).hex
    places = ((0, READ, 0), (8, READ, 1), (24, WRITE, 2))
    params = tuple(Param(ParamKind.POINTER, access, at, region, 0) for at, access, region in places)
    return NodeTable(
        symbols=(Symbol("T", 1, MOST),),
        regions=(
            Region(RegionKind.WORKSPACE, MOST * K * 2),
            Region(RegionKind.WEIGHTS, N * K * 2),
            Region(RegionKind.IO, MOST * N * 2),
        ),
        cubins=((digest, len(CODE)),),
        kernels=(
            Kernel(digest, "linear", (128, 1, 1), 0, 72),
            Kernel(digest, "reduce", (128, 1, 1), 0, 48),
        ),
        nodes=(Node(NodeKind.GEMM, target=0, params=params),),
        gemms=(Gemm("T", N, K, "bfloat16"),),
        variants=(
            Variant(N, 0, "bfloat16", 0, 16, 64, split_k=2, max_rows=16, reduce_kernel=1),
            Variant(N, 0, "bfloat16", 0, 64, 64),
        ),
        segments=(Segment(SegmentKind.PIECE, "0" * 16, 1),),
    )


def scaled_table() -> NodeTable:
    """Products of fp8: with scales by row, of blocks, of blocks that are to be spread, and those
    that cuBLASLt does not have."""
    digest = Digest.of(SCALED).hex
    places = ((0, READ, 0), (8, READ, 1), (24, WRITE, 2), (32, READ, 0), (40, READ, 1))
    params = tuple(Param(ParamKind.POINTER, access, at, region, 0) for at, access, region in places)
    kinds = (
        *(("rows", K, NONE), ("blocks", BLOCKS_K, 1), ("blocks", SPREAD_K, 1)),
        ("mixed", K, NONE),
    )
    return replace(
        step_table(),
        regions=tuple(
            Region(kind, MOST * SPREAD_K)
            for kind in (RegionKind.WORKSPACE, RegionKind.WEIGHTS, RegionKind.IO)
        ),
        cubins=((digest, len(SCALED)),),
        kernels=(
            Kernel(digest, "scaled_linear", (256, 1, 1), 0, 72),
            Kernel(digest, "spread_scales", (128, 1, 1), 0, 48),
        ),
        nodes=tuple(Node(NodeKind.GEMM, target=at, params=params) for at in range(4)),
        gemms=tuple(Gemm("T", N, k, FP8, False, "bfloat16", one) for one, k, _ in kinds),
        variants=tuple(
            Variant(
                *(N, k, FP8, 0, rows, 16),
                max_rows=most,
                reduce_kernel=second,
                out="bfloat16",
                scales=one,
            )
            for one, k, second in kinds
            for most, rows in ((8, 8), (0, 64))
        ),
        segments=(Segment(SegmentKind.PIECE, "0" * 16, 4),),
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one GPU artifact."""
    return stored(tmp_path, step_table(), CODE)


def stored(tmp_path: Path, table: NodeTable, code: bytes, **info: object) -> Store:
    made = Store.open(tmp_path / "store")
    manifest = Manifest(
        request=(("model.digest", "x"),),
        code_key=(("a", "b"),),
        host_rules={"loader": "Player", "tables": "2"},
        title="tiny",
        info={"compilation": {"capture_sizes": [1, 8]}, **info},
    )
    made.publish(manifest, {"table/step": encode(table), f"cubin/{Digest.of(code).hex}": code})
    return made


def tune(store: Store, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vcc.cli.main", "tune", "--cache-dir", str(store.root), *words],
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
    )


def tuned(store: Store, *words: str, **settings: str) -> dict[str, Any]:
    done = tune(store, "--json", *words, **settings)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["artifacts"]
    return dict(found)


def test_products_of_graphs_and_prefill_are_recorded_timed_and_chosen(store: Store) -> None:
    found = tuned(store)
    assert found["answer"]["recorded"] == 6
    assert [one["shape"]["m"] for one in found["measured"]] == [1, 8, 128, 256, 384, 512]
    assert all(one["stored_ns"] >= 0 and one["variant_ns"] >= 0 for one in found["measured"])
    (entry,) = store.entries()
    kept = choices(GemmStore(store.root), store.load(entry))
    assert [one.shape.m for one in kept] == [1, 8, 128, 256, 384, 512]
    assert {one.route for one in kept} <= {"cublaslt", "triton"}
    assert all(one.cublaslt_us is not None and one.triton_us is not None for one in kept)


def test_a_second_run_records_nothing(store: Store) -> None:
    tuned(store, "--rows", "1,2")
    assert tuned(store, "--rows", "1,2", "--no-measure")["answer"]["recorded"] == 0


def test_a_product_that_cannot_be_stored_is_timed_by_its_kernel_alone(store: Store) -> None:
    found = tuned(store, "--rows", "1", lt="none")
    assert [one["stored_ns"] for one in found["measured"]] == [-1]
    assert [one["route"] for one in found["measured"]] == ["triton"]


def test_text_names_products_and_both_times(store: Store) -> None:
    done = tune(store, "--rows", "1")
    assert done.returncode == 0, done.stderr
    assert "tiny" in done.stdout
    assert "1x64x32 bfloat16" in done.stdout
    assert "1 products recorded" in done.stdout


def test_products_of_fp8_are_recorded_and_timed_and_those_it_has_not_are_named(
    tmp_path: Path,
) -> None:
    store = stored(tmp_path, scaled_table(), SCALED)
    found = tuned(store, "--rows", "1,200")
    assert (found["answer"]["recorded"], found["answer"]["self_test"]["passed"]) == (6, True)
    measured = [(one["shape"]["scales"], one["shape"]["m"]) for one in found["measured"]]
    assert measured == [("rows", 1), ("rows", 200), *[("blocks", 4), ("blocks", 200)] * 2]
    assert all(one["stored_ns"] >= 0 and one["variant_ns"] >= 0 for one in found["measured"])
    (lacking,) = found["unstorable"]
    assert (lacking["shape"]["scales"], lacking["shape"]["m"]) == ("mixed", MOST)
    (entry,) = store.entries()
    assert len(choices(GemmStore(store.root), store.load(entry))) == 6
    text = tune(store, "--rows", "1").stdout
    assert f"1x{N}x{K} float8_e4m3fn by rows into bfloat16" in text
    assert f"not in the store: {MOST}x{N}x{K} float8_e4m3fn by mixed into bfloat16: cuBL" in text


def test_an_empty_store_is_a_miss(tmp_path: Path) -> None:
    done = tune(Store.open(tmp_path / "store"))
    assert done.returncode == 1
    assert "no GPU artifact" in done.stderr


def test_artifacts_of_another_device_are_left_out_and_refused_when_named(store: Store) -> None:
    manifest = Manifest(
        request=(("model.digest", "y"),),
        code_key=(("a", "c"),),
        host_rules={"loader": "Player", "arch": "sm_80", "tables": "2"},
        title="other",
    )
    entry = store.publish(manifest, {"table/step": encode(step_table())})
    assert tuned(store, "--rows", "1", "--no-measure")["title"] == "tiny"
    done = tune(store, entry.artifact)
    assert done.returncode == 3
    assert "other cannot be tuned here" in done.stderr
    assert "it is for sm_80" in done.stderr


def test_rows_are_numbers(store: Store) -> None:
    done = tune(store, "--rows", "1,x")
    assert done.returncode == 2


def test_rows_beyond_the_steps_of_an_artifact_are_named(store: Store) -> None:
    found = tuned(store, "--rows", f"1,{MOST + 1}", "--no-measure")
    assert found["answer"]["recorded"] == 1
    assert found["trouble"] == f"its steps have at most {MOST} rows: left out are {MOST + 1}"
    done = tune(store, "--rows", "9" * 20)
    assert done.returncode == 0, done.stderr
    assert f"at most {MOST} rows" in done.stdout
    assert "no matrix products" not in done.stdout


def test_a_forward_of_fixed_sizes_is_recorded_at_just_its_rows(tmp_path: Path) -> None:
    gemms = (Gemm(300, N, K, "bfloat16"),)
    store = stored(tmp_path, replace(step_table(), symbols=(), gemms=gemms), CODE, kind="module")
    found = tuned(store)
    assert [one["shape"]["m"] for one in found["measured"]] == [300]
    assert found["answer"]["recorded"] == 1
    found = tuned(store, "--rows", "1,300")
    assert found["trouble"] == "its products have 300 rows: left out are 1"
    assert [one["shape"]["m"] for one in found["measured"]] == [300]


def test_a_forward_of_sizes_that_vary_is_recorded_at_buckets_and_its_most_rows(
    tmp_path: Path,
) -> None:
    """Capture sizes are numbers of tokens of a decoder's steps."""
    gemms = (Gemm(["*", 3, "T"], N, K, "bfloat16"),)
    regions = tuple(replace(one, size=4 * one.size) for one in step_table().regions)
    table = replace(step_table(), symbols=(Symbol("T", 1, 150),), gemms=gemms, regions=regions)
    found = tuned(stored(tmp_path, table, CODE, kind="module"))
    assert [one["shape"]["m"] for one in found["measured"]] == [128, 256, 384, 450]


def test_no_gpu_is_exit_three(store: Store) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vcc.cli.main", "tune", "--cache-dir", str(store.root)],
        env=environment() | {"VCC_LIBCUDA": "/nowhere/libcuda.so.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "/nowhere/libcuda.so.1" in done.stderr
