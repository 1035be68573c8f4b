"""`vcc compile demo --target sm_90`: the artifact, its table, and the same bytes elsewhere."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cuda_child import _import_inductor
from support.flips import flip_at_random, flip_headers, other_damage, targets
from support.flow import ask, built
from support.stores import quiet

from vcc.cache.store import Store
from vcc.engine.graphs.expr import evaluate
from vcc.engine.graphs.planner.arithmetic import SIZES
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import (
    NodeKind,
    NodeTable,
    ParamKind,
    RegionKind,
    Role,
    SegmentKind,
    When,
)
from vcc.engine.monitor import Counters
from vcc.engine.request import Built

LIMITS = {"max_num_batched_tokens": 512, "max_num_seqs": 64, "max_model_len": 512}
OPTIONS = {"target": "sm_90", "mode": "full", **LIMITS}
INPUTS = {
    *("input_ids", "positions", "slot_mapping", "block_table", "seq_lens", "query_start"),
    *("logits_index", "temperature", "top_p", "top_k", "seed", "request", "step", "active"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def artifact(store: Store) -> Built:
    _import_inductor()
    counters = Counters()
    with counters.expect(traces=1, pieces=5, unique_pieces=3, compiles=3, misses=1, hits=0):
        return built(ask("demo", **OPTIONS), store, counters)


@pytest.fixture(scope="module")
def table(artifact: Built) -> NodeTable:
    return decode(artifact.loaded.read("table/step"))


def test_it_holds_tables_cubins_and_constants_and_no_host_code(artifact: Built) -> None:
    blobs = artifact.loaded.read_all()
    kinds = Counter(name.split("/")[0] for name in blobs)
    assert set(kinds) == {"table", "cubin", "constant", "golden"}
    assert kinds["golden"] == 3
    for name, data in blobs.items():
        if name.startswith("cubin/"):
            assert bytes(data[:4]) == b"\x7fELF"
            assert int.from_bytes(data[18:20], "little") == 190  # EM_CUDA
        else:
            assert b"\x7fELF" not in bytes(data)
    assert sum(len(data) for data in blobs.values()) < 1 << 20


def test_it_says_who_can_load_it(artifact: Built) -> None:
    rules = dict(artifact.loaded.manifest.host_rules)
    assert rules["loader"] == "Player"
    assert rules["arch"] == "sm_90"
    assert int(rules["driver"]) >= 11080
    info = artifact.loaded.manifest.info
    assert info["device"] == "NVIDIA H200"
    assert info["table"]["nodes"] == {"gemm": 17, "kernel": 39}
    code = dict(artifact.loaded.manifest.code_key)
    assert {"target", "target.profile", "kv.block_size", "version.triton", "vcc.source"} <= set(
        code
    )


def test_a_second_request_is_a_hit_and_compiles_nothing(artifact: Built, store: Store) -> None:
    counters = Counters()
    with counters.expect(hits=1, misses=0, compiles=0):
        again = built(ask("demo", **OPTIONS), store, counters)
        assert again.reused
    with counters.expect(hits=1, compiles=0):
        sizes = built(ask("demo", **OPTIONS, shapes="1,2"), store, counters)
    assert sizes.loaded.manifest.blobs == artifact.loaded.manifest.blobs


def test_another_folder_and_a_fresh_process_give_the_same_bytes(
    artifact: Built, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "vcc.cli.main", "compile", "demo", "--json"]
    for name, value in OPTIONS.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    command += ["--cache-dir", str(tmp_path / "store")]
    changed = {"TMPDIR": str(tmp_path / "elsewhere"), "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, env=os.environ | changed, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = blobs_of(tmp_path / "store", json.loads(done.stdout)["artifact"])
    assert found == {n: ref.sha256 for n, ref in artifact.loaded.manifest.blobs.items()}


def blobs_of(place: Path, artifact: str) -> dict[str, str]:
    command = [sys.executable, "-m", "vcc.cli.main", "inspect", "artifact", artifact, "--json"]
    done = subprocess.run(
        [*command, "--cache-dir", str(place)], capture_output=True, text=True, check=True
    )
    said: Any = json.loads(done.stdout)
    return {name: ref["sha256"] for name, ref in said["blobs"].items()}


def test_segments_follow_the_step(table: NodeTable) -> None:
    kinds = [one.kind for one in table.segments]
    layers = [SegmentKind.PIECE, SegmentKind.OP, SegmentKind.OP] * 4
    assert kinds == [SegmentKind.ADVANCE, *layers, SegmentKind.PIECE, SegmentKind.SAMPLE]
    names = [one.name for one in table.segments if one.kind is SegmentKind.OP]
    assert names == ["vcc::kv_write", "vcc::paged_attention"] * 4
    assert sum(one.nodes for one in table.segments) == len(table.nodes)


def test_sizes_are_those_of_the_request(table: NodeTable) -> None:
    assert [(s.name, s.low, s.high) for s in table.symbols] == [
        ("T", 1, 512),
        ("B", 1, 64),
        ("K", 1, 1 << 24),
    ]


def test_a_decode_step_and_any_other_differ_in_attention_alone(table: NodeTable) -> None:
    found = Counter(node.when for node in table.nodes)
    assert found[When.UNIFORM] == 2 * 4
    assert found[When.MIXED] == 4


def sizes_of(table: NodeTable, tokens: int, seqs: int) -> dict[str, int]:
    return {"T": tokens, "B": seqs, "K": 40}


def test_inputs_are_contiguous_and_before_what_the_host_reads(table: NodeTable) -> None:
    """At places that are the same at every size, as the host holds on to them."""
    io = next(i for i, r in enumerate(table.regions) if r.kind is RegionKind.IO)
    found = sorted((t for t in table.tensors if t.region == io), key=lambda t: t.offset)
    assert {t.name for t in found if t.role is Role.INPUT} == INPUTS
    assert [t.name for t in found if t.role is Role.OUTPUT] == ["token", "logits"]
    assert [t.role for t in found] == [Role.INPUT] * len(INPUTS) + [Role.OUTPUT] * 2
    sizes = sizes_of(table, 512, 64)
    ends = [t.offset + SIZES[t.dtype] * evaluate(["*", *t.shape, 1], sizes) for t in found]
    gaps = [after.offset - end for end, after in zip(ends, found[1:], strict=False)]
    assert all(0 <= gap < 256 for gap in gaps)


def test_pieces_depend_on_the_sequences_only_in_the_last_one(table: NodeTable) -> None:
    """A graph of a piece is shared by all steps of as many tokens."""
    at, found = 0, []
    for segment in table.segments:
        nodes = table.nodes[at : at + segment.nodes]
        at += segment.nodes
        if segment.kind is SegmentKind.PIECE:
            found.append("'B'" in repr([(node.grid, node.params) for node in nodes]))
    assert found == [False] * 4 + [True]


def test_weights_and_constants_lie_at_fixed_aligned_places(table: NodeTable) -> None:
    spans = []
    for tensor in table.tensors:
        if tensor.role in (Role.WEIGHT, Role.CONSTANT):
            assert isinstance(tensor.offset, int)
            assert tensor.offset % 256 == 0
            count = evaluate(["*", *tensor.shape, 1], {})
            spans.append((tensor.offset, tensor.offset + count * SIZES[tensor.dtype]))
    spans = sorted(set(spans))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    tied = [t.offset for t in table.tensors if t.target in ("embed.weight", "head.weight")]
    assert len(set(tied)) == 1


def test_caches_follow_one_another(table: NodeTable) -> None:
    caches = [t for t in table.tensors if t.role is Role.CACHE]
    assert [t.name for t in caches] == [f"kv_caches_{i}" for i in range(4)]
    block = 2 * 16 * 2 * 32 * 2
    assert [evaluate(t.offset, {"K": 40}) for t in caches] == [i * 40 * block for i in range(4)]


def test_the_logits_are_written_by_their_product(table: NodeTable) -> None:
    logits = next(t for t in table.tensors if t.name == "logits")
    (node,) = (
        node
        for node in table.nodes
        if node.kind is NodeKind.GEMM
        and any(p.region == logits.region and p.value == logits.offset for p in node.params)
    )
    assert node.params[-1].offset == 24
    assert table.gemms[node.target].m == "B"


def test_all_pointers_are_aligned_at_every_size(table: NodeTable) -> None:
    for tokens, seqs in ((1, 1), (3, 2), (131, 5), (512, 64)):
        sizes = sizes_of(table, tokens, seqs)
        for node in table.nodes:
            for param in node.params:
                if param.kind is ParamKind.POINTER:
                    assert evaluate(param.value, sizes) % 16 == 0


def test_the_workspace_is_shared_by_the_layers(table: NodeTable) -> None:
    (space,) = (r for r in table.regions if r.kind is RegionKind.WORKSPACE)
    rows = 512 * 2 * 768  # the widest activation
    sampling = 64 * (2 * 4096 * 4 + 2 * 64 * 4 + 64)
    assert space.size < 6 * rows + 2 * sampling


def test_every_product_has_variants_for_any_number_of_rows(table: NodeTable) -> None:
    for gemm in table.gemms:
        own = [v for v in table.variants if (v.n, v.k, v.has_c) == (gemm.n, gemm.k, gemm.has_c)]
        assert own
        assert own[-1].max_rows == 0


def test_every_kernel_is_in_a_stored_cubin(artifact: Built, table: NodeTable) -> None:
    stored = {name[6:] for name in artifact.loaded.manifest.blobs if name.startswith("cubin/")}
    assert {kernel.cubin for kernel in table.kernels} == stored == {d for d, _ in table.cubins}


def test_every_change_of_stored_bytes_is_seen(artifact: Built, fast_tmp: Path) -> None:
    """Rows 41 to 45: headers whole (of the manifest each fifth byte), a thousand bits a kind."""
    entry = quiet(fast_tmp / "store").publish(artifact.loaded.manifest, artifact.loaded.read_all())
    for full in (False, True):
        found = targets(fast_tmp / "store", entry, full=full)
        done = flip_at_random(found, 1000, seed=20261130)
        kinds = {"ref", "manifest", "table", "cubin", "constant", "golden"}
        assert done == dict.fromkeys(kinds, 1000)
        assert other_damage(found)["swapped"] == len(found)
    headers = flip_headers(targets(fast_tmp / "store", entry, full=False), {"manifest": 5})
    assert headers.keys() == kinds - {"constant"}
    print(dict(headers))
