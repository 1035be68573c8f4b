"""Goldens of a GPU build: their tables compute the references, and some pieces have none."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.decoders import decoder_pieces
from support.flow import ask
from support.sources import ROOT

from vcc.engine.compile.gpu import device_profile
from vcc.engine.config.environment import interpreter_environment
from vcc.engine.events import NullEvents
from vcc.engine.graphs.golden import Golden
from vcc.engine.graphs.planner import golden as planner_golden
from vcc.engine.graphs.planner.content import GpuContent, write
from vcc.engine.graphs.planner.golden import make_goldens
from vcc.engine.graphs.planner.process import plan_in_child
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import Gemm, Kernel, NodeTable, RegionKind, Variant
from vcc.engine.graphs.table.variants import variant_for
from vcc.engine.request import settle

LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 48, "max_model_len": 64}


@pytest.fixture(scope="module")
def exact() -> GpuContent:
    """The demo for a device of few multiprocessors, in fp32: Triton's interpreter has no bf16."""
    settled = settle(ask("demo", target="sm_90", mode="full", dtype="fp32", **LIMITS))
    few = replace(device_profile(settled), sm_count=4)
    return plan_in_child(settled, few, NullEvents())


def test_every_piece_of_the_demo_has_one(exact: GpuContent) -> None:
    pieces = {one["id"] for one in exact.info["pieces"]}
    assert exact.goldens.keys() == pieces == exact.info["goldens"].keys()
    for piece, data in exact.goldens.items():
        golden = Golden.decode(data)
        table = decode(golden.table)
        assert exact.info["goldens"][piece] == golden.argument_bytes
        assert not table.symbols
        assert {digest for digest, _ in table.cubins} <= exact.cubins.keys()
        assert table.segments[0].name == piece[:16]
        places = {one.name: table.regions[one.region].kind for one in table.tensors}
        outputs = len(golden.references)
        kinds = [places[str(index)] for index in range(len(golden.arguments))]
        assert set(kinds[:-outputs]) == {RegionKind.WEIGHTS}
        assert set(kinds[-outputs:]) == {RegionKind.IO}


def interpreted(content: GpuContent, folder: Path) -> dict[str, str | None]:
    """What is wrong with the results of each golden."""
    write(content, folder)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.interpreted_goldens", str(folder)],
        env=interpreter_environment(folder),
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


def test_their_tables_compute_the_references(exact: GpuContent, tmp_path: Path) -> None:
    (tmp_path / "right").mkdir()
    found = interpreted(exact, tmp_path / "right")
    assert set(found.values()) == {None}, found

    piece, data = next(iter(exact.goldens.items()))
    golden = Golden.decode(data)
    flipped = replace(golden, references=tuple(-one for one in golden.references))
    (tmp_path / "wrong").mkdir()
    wrong = replace(exact, goldens={piece: flipped.encode()})
    (said,) = interpreted(wrong, tmp_path / "wrong").values()
    assert said is not None
    assert said.startswith("output 0: error")


def test_large_arguments_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_golden, "BUDGET", 0)
    pieces = decoder_pieces("llama", 1).unique
    ids = [piece.id for piece in pieces]
    work: Any = dict.fromkeys(ids, SimpleNamespace(turned=()))  # nothing else is read of it
    made = make_goldens(pieces, work, dict.fromkeys(ids, NodeTable()))
    assert not made.blobs
    assert made.said.keys() == {piece.id for piece in pieces}
    assert all("MiB, more than 0" in str(why) for why in made.said.values())


FEW = Variant(8, 4, "float32", 0, 16, 32, split_k=2, max_rows=16, reduce_kernel=2)
MANY = Variant(8, 4, "float32", 1, 64, 32)
"""Both fit a product of few rows; the first is played."""


def test_a_golden_plays_the_kernels_that_the_step_plays() -> None:
    """Whatever order its own products come in."""
    kernels = tuple(Kernel(str(i) * 64, f"k{i}", (32, 1, 1), 0, 0) for i in range(3))
    step = NodeTable(kernels=kernels, variants=(FEW, MANY))
    for rows in ((48, 4), (4, 48)):
        products = [Gemm(m, 8, 4, "float32") for m in rows]
        own: list[Kernel] = []
        made = NodeTable(variants=planner_golden._variants(products, step, own))
        for one, m in zip(products, rows, strict=True):
            here, there = (variant_for(table, one.family, m) for table in (made, step))
            assert here is not None
            assert there is not None
            assert own[here.kernel] == kernels[there.kernel]


def test_partial_products_are_of_the_products_that_a_kernel_computes() -> None:
    products = [Gemm(m, 8, 4, "float32") for m in (4, 12, 48)]
    assert planner_golden._partials(FEW, products) == 4 * 2 * 12 * 8
    assert planner_golden._partials(MANY, products) == 0
    assert planner_golden._partials(replace(FEW, k=0), products) == 4 * 2 * 12 * 8
