"""A decoder for a GPU with ranges and an exact size: rows P9 and P10, its tables, refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.checkpoints import ARCHITECTURES, SIZES
from support.cuda_child import _import_inductor
from support.flow import ask, built
from support.stores import quiet

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import (
    NodeKind,
    NodeTable,
    ParamKind,
    RegionKind,
    Role,
    SegmentKind,
    Symbol,
)
from vcc.engine.monitor import Counters
from vcc.engine.request import BuildRequest, Built
from vcc.engine.verify import verify

RANGES = {"compile_sizes": [16], "user_passes": ["gated:SMALL"]}
"""The end point 8 is what the pass asks for."""

GATED = """
from vcc.engine.passes.base import Gate, Outcome, define

def count(graph, context):
    return Outcome(1)

SMALL = define("small_only", count, gate=Gate(max_tokens=8, targets=("cuda",)))
"""

NAMES = {"table/step/1-8": (1, 8), "table/step/9-48": (9, 48), "table/step/16-16": (16, 16)}
LIMITS = {"max_num_seqs": 4, "max_model_len": 64}


def request(folder: Path, tokens: int, config: Mapping[str, Any]) -> BuildRequest:
    """A tiny decoder of one layer, for a GPU."""
    fields = SIZES | {"num_hidden_layers": 1, "model_type": "qwen3"}
    text = {"architectures": [ARCHITECTURES["qwen3"]], "torch_dtype": "float32", **fields}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(text))
    limits = {**LIMITS, "max_num_batched_tokens": tokens, "target": "sm_90", "weights": "none"}
    return ask(folder, config=json.dumps(config), mode="full", dtype="bf16", **limits)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the user's pass, which is the working directory."""
    _import_inductor()
    folder = tmp_path_factory.mktemp("ranges")
    (folder / "gated.py").write_text(GATED)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delitem(sys.modules, "gated", raising=False)
        yield folder
    sys.modules.pop("gated", None)


@pytest.fixture(scope="module")
def artifact(place: Path) -> Built:
    counters = Counters()
    with counters.expect(traces=1, pieces=6, unique_pieces=6, compiles=6, misses=1):
        return built(request(place / "model", 48, RANGES), quiet(place / "store"), counters)


@pytest.fixture(scope="module")
def tables(artifact: Built) -> dict[str, NodeTable]:
    return {name: decode(artifact.loaded.read(name)) for name in NAMES}


def test_p9_each_range_and_each_exact_size_has_a_table(artifact: Built) -> None:
    blobs = artifact.loaded.manifest.blobs
    assert {name for name in blobs if name.startswith("table/")} == set(NAMES)
    rows = artifact.loaded.manifest.info["ranges"]
    assert [row["sizes"] for row in rows] == ["1-8", "9-48", "16-16"]
    assert all(row["table"]["nodes"]["kernel"] > 5 for row in rows)
    assert "table" not in artifact.loaded.manifest.info
    compiled = [piece for row in rows for piece in row["compiled"]]
    goldens = {name.removeprefix("golden/") for name in blobs if name.startswith("golden/")}
    assert goldens == set(compiled)
    assert verify(artifact.loaded).contents["tables"] == 3


def test_f7_a_pass_runs_in_the_range_that_it_asked_for(artifact: Built) -> None:
    rows = artifact.loaded.manifest.info["ranges"]
    found = {row["sizes"]: row["passes"]["small_only"] for row in rows}
    assert found["1-8"] == 1
    assert "above its limit of 8" in found["9-48"]
    assert "above its limit of 8" in found["16-16"]


def test_p10_a_warm_build_of_ranges_runs_no_pass(artifact: Built, place: Path) -> None:
    counters = Counters()
    with counters.expect(hits=1, misses=0, passes=0, compiles=0, traces=0):
        again = built(request(place / "model", 48, RANGES), quiet(place / "store"), counters)
    assert again.reused
    assert again.loaded.manifest.blobs == artifact.loaded.manifest.blobs


def test_tables_share_every_region_and_every_place_in_it(tables: dict[str, NodeTable]) -> None:
    first, *others = tables.values()
    for other in others:
        assert other.regions == first.regions
        mine, theirs = (
            {t.name: (t.role, t.region, t.offset, t.dtype) for t in one.tensors}
            for one in (first, other)
        )
        assert mine == theirs
    for name, table in tables.items():
        sizes = {one.name: (one.low, one.high) for one in table.symbols}
        assert sizes == {"T": NAMES[name], "B": (1, 4), "K": (1, 1 << 24)}


def test_in_the_pieces_of_one_size_nothing_depends_on_it(tables: dict[str, NodeTable]) -> None:
    def sizes_of(table: NodeTable) -> str:
        """All sizes of pieces; operators' kernels are those of every range."""
        kinds = [one.kind for one in table.segments for _ in range(one.nodes)]
        pairs = zip(table.nodes, kinds, strict=True)
        nodes = [node for node, kind in pairs if kind is SegmentKind.PIECE]
        values = [param.value for node in nodes for param in node.params]
        return str([values, [node.grid for node in nodes], [gemm.m for gemm in table.gemms]])

    assert "T" not in sizes_of(tables["table/step/16-16"])
    assert "T" in sizes_of(tables["table/step/9-48"])


def work(table: NodeTable, sizes: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """The nodes at these sizes, with places in regions but for those in IO."""
    found: list[tuple[Any, ...]] = []
    for node in table.nodes:
        params = [
            (one.offset, kind, "io" if kind is RegionKind.IO else evaluate(one.value, sizes))
            if one.kind is ParamKind.POINTER
            and (kind := table.regions[one.region].kind) is not None
            else (one.offset, one.kind, evaluate(one.value, sizes))
            for one in node.params
        ]
        if node.kind is NodeKind.KERNEL:
            kernel = table.kernels[node.target]
            what: Any = (kernel.cubin, kernel.function, kernel.block, kernel.shared)
        else:
            gemm = table.gemms[node.target]
            what = (evaluate(gemm.m, sizes), gemm.n, gemm.k, gemm.has_c)
        found.append((node.kind, node.when, what, evaluate_all(node.grid, sizes), params))
    return found


@pytest.mark.slow  # the short form of values is in test_verify_interpret.py
def test_a_table_launches_what_an_artifact_of_its_range_alone_does(
    tables: dict[str, NodeTable], place: Path
) -> None:
    alone = built(request(place / "model", 8, {}), quiet(place / "alone"), Counters())
    whole, mine = decode(alone.loaded.read("table/step")), tables["table/step/1-8"]
    assert {one.name: (one.low, one.high) for one in whole.symbols}["T"] == (1, 8)
    for tokens, seqs in ((1, 1), (2, 2), (5, 3), (8, 4)):
        sizes = {"T": tokens, "B": seqs, "K": 3}
        assert work(mine, sizes) == work(whole, sizes)
    assert mine.variants == whole.variants
    assert [one.cubin for one in mine.kernels] == [one.cubin for one in whole.kernels]


def rebuilt(found: Loaded, change: Callable[[dict[str, bytes], dict[str, Any]], None]) -> Loaded:
    """A copy with other blobs and another list of ranges."""
    blobs, info = dict(found.read_all()), msgspec.to_builtins(found.manifest.info)
    change(blobs, info)
    return Loaded.of(msgspec.structs.replace(found.manifest, info=info), blobs)


def with_symbol(data: bytes, low: int, high: int) -> bytes:
    table = decode(data)
    symbols = tuple(Symbol("T", low, high) if one.name == "T" else one for one in table.symbols)
    return encode(replace(table, symbols=symbols))


def gap(blobs: dict[str, bytes], info: dict[str, Any]) -> None:
    blobs["table/step/10-48"] = with_symbol(blobs.pop("table/step/9-48"), 10, 48)
    info["ranges"][1]["sizes"] = "10-48"


def overlap(blobs: dict[str, bytes], info: dict[str, Any]) -> None:
    blobs["table/step/8-48"] = with_symbol(blobs.pop("table/step/9-48"), 8, 48)
    info["ranges"][1]["sizes"] = "8-48"


def unlisted(blobs: dict[str, bytes], info: dict[str, Any]) -> None:
    info["ranges"].pop()


def swapped(blobs: dict[str, bytes], info: dict[str, Any]) -> None:
    one, two = "table/step/1-8", "table/step/9-48"
    blobs[one], blobs[two] = blobs[two], blobs[one]


def moved(blobs: dict[str, bytes], info: dict[str, Any]) -> None:
    table = decode(blobs["table/step/1-8"])
    weights = [one for one in table.tensors if one.role is Role.WEIGHT]
    other = replace(weights[0], offset=weights[1].offset)
    tensors = tuple(other if one == weights[0] else one for one in table.tensors)
    blobs["table/step/1-8"] = encode(replace(table, tensors=tensors))


def larger(blobs: dict[str, bytes], info: dict[str, Any]) -> None:
    table = decode(blobs["table/step/1-8"])
    *others, last = table.regions
    regions = (*others, replace(last, size=evaluate(last.size, {}) + 256))
    blobs["table/step/1-8"] = encode(replace(table, regions=regions))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (gap, "no node table for sizes 9 to 9"),
        (overlap, "two node tables for sizes 8 to 8"),
        (unlisted, "does not list that range"),
        (swapped, "is a table of other sizes"),
        (moved, "lies elsewhere"),
        (larger, "their regions are not the same"),
    ],
)
def test_tables_that_are_not_of_one_step_do_not_verify(
    artifact: Built, change: Callable[[dict[str, bytes], dict[str, Any]], None], said: str
) -> None:
    with pytest.raises(IntegrityError) as told:
        verify(rebuilt(artifact.loaded, change))
    assert said in f"{told.value} {told.value.why}"


@pytest.mark.slow
def test_a_second_build_gives_the_same_bytes(artifact: Built, place: Path) -> None:
    again = built(request(place / "model", 48, RANGES), quiet(place / "again"), Counters())
    found = {name: ref.sha256 for name, ref in again.loaded.manifest.blobs.items()}
    assert found == {name: ref.sha256 for name, ref in artifact.loaded.manifest.blobs.items()}
