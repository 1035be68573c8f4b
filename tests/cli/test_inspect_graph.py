"""vcc inspect graph and kernel show what a GPU artifact holds, without a GPU."""

from __future__ import annotations

import pytest
from support.cli_reference import PAGE, differences, shapes
from support.gpu_artifacts import publish, table_and_blobs

from vcc.cache.errors import Exit
from vcc.cache.store import Store
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import NodeTable, Region, RegionKind, Segment, SegmentKind


@pytest.fixture
def stored(own_store):
    return publish(Store.open(None))


def digest_of(function: str) -> str:
    return next(k.cubin for k in table_and_blobs()[0].kernels if k.function == function)


def test_graph_shows_segments_kernels_products_and_regions(vcc, stored):
    text = vcc("inspect", "graph", "demo", "--tokens", "4", "--seqs", "2").out
    assert "sizes T = 4, B = 2, K = 8 (built for T 1 to 512, B 1 to 64, K 8 to 4096)" in text
    for part in ("piece", "0123456789abcdef", "vcc::paged_attention", "gemm, tile 16x64, k in 4"):
        assert part in text
    assert "WORKSPACE  1.0 MB" in " ".join(text.split()).replace("WORKSPACE ", "WORKSPACE  ")


def test_sizes_decide_grids_and_which_nodes_run(vcc, stored):
    def nodes(*words: str) -> list[dict]:
        found = vcc("inspect", "graph", "demo", "--json", *words).json
        assert found["artifact"] == stored.artifact
        return found["tables"]["table/step"]["nodes"]

    decode = nodes("--tokens", "2", "--seqs", "2")
    mixed = nodes("--tokens", "200", "--seqs", "2")
    assert (decode[0]["when"], decode[0]["grid"]) == ("UNIFORM", [1, 32, 1])
    assert (mixed[0]["when"], mixed[0]["grid"]) == ("MIXED", [4, 32, 1])


def test_launches_are_counted_by_kernel(vcc, stored):
    found = vcc("inspect", "graph", stored.artifact[:8], "--json").json["tables"]["table/step"]
    launches = {one["function"]: one["launches"] for one in found["kernels"]}
    assert launches == {"kernel": 1, "gemm": 0, "reduce": 0}
    plain, adding, scaled, by_row = found["gemms"]
    assert (plain["rows"], plain["n"], plain["k"], plain["adds"]) == (1, 64, 64, False)
    assert adding["route"] == "gemm, tile 64x64"
    assert (scaled["scales"], scaled["out"], scaled["route"]) == (
        *("tensor", "float16", "no Triton kernel"),
    )
    assert (by_row["scales"], by_row["route"]) == ("rows", "gemm, tile 64x64")
    assert plain["scales"] == plain["out"] == ""
    text = vcc("inspect", "graph", stored.artifact[:8], "--nodes").out
    assert "float8_e4m3fn by rows into bfloat16" in text
    assert "[rows, 64] x [64, 64] + c, fp8 by rows" in text


def test_every_node_is_listed_when_asked(vcc, stored):
    text = vcc("inspect", "graph", "demo", "--nodes").out
    assert "1x32x1" in text
    assert "reads WEIGHTS, updates KV_CACHE" in text


def test_dot_is_a_graph_with_a_frame_a_segment(vcc, stored, tmp_path):
    file = tmp_path / "step.dot"
    assert vcc("inspect", "graph", "demo", "--dot", str(file)).code == 0
    text = file.read_text()
    assert text.startswith("digraph step {")
    assert text.count("subgraph cluster_") == 4
    assert 'label="op vcc::paged_attention"' in text
    assert text.count(" -> ") == 7
    assert text.count("{") == text.count("}")
    assert vcc("inspect", "graph", "demo", "--dot", "-").out == text + "\n"
    assert vcc("inspect", "graph", "demo", "--dot", "-", "--json").code == Exit.USAGE
    refused = vcc("inspect", "graph", "demo", "--dot", str(tmp_path / "no" / "file"))
    assert refused.code == Exit.STORAGE


def test_a_size_outside_the_table_is_refused_with_its_range(vcc, stored):
    done = vcc("inspect", "graph", "demo", "--tokens", "513")
    assert done.code == Exit.USAGE
    assert "T = 513 is outside the table's range" in done.err
    assert "1 to 512" in done.err


def test_an_artifact_without_tables_says_for_what_it_is(vcc, engine):
    vcc("compile", "demo")
    (entry,) = vcc("inspect", "cache", "--json").json["artifacts"]
    done = vcc("inspect", "graph", entry["artifact"])
    assert done.code == Exit.USAGE
    assert "it was built for cpu:x86-64-v3" in done.err
    assert "--target sm_90" in done.err
    missing = vcc("inspect", "graph", "demo")
    assert missing.code == Exit.NEGATIVE
    assert "no artifact demo for a GPU" in missing.err
    assert "vcc compile demo --target sm_90" in missing.err


def test_of_a_model_the_gpu_artifact_is_taken(vcc, engine, stored):
    vcc("compile", "demo")
    found = vcc("inspect", "graph", "demo", "--json").json
    assert found["artifact"] == stored.artifact


def test_kernel_shows_functions_registers_and_users(vcc, stored):
    digest = digest_of("reduce")
    text = vcc("inspect", "kernel", digest[:12]).out
    assert text.startswith(digest)
    assert "sm_90" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["reduce", "18", "1.0", "kB", "0", "B", "48", "B", "128", "B"] in rows
    found = vcc("inspect", "kernel", digest, "--json").json
    assert {one["name"]: one["registers"] for one in found["functions"]} == {
        "kernel": 40,
        "reduce": 18,
    }
    assert [(one["function"], one["nodes"]) for one in found["uses"]] == [
        ("kernel", 2),
        ("reduce", 0),
    ]


def test_the_elf_file_can_be_had(vcc, stored, tmp_path):
    file = tmp_path / "k.cubin"
    digest = digest_of("gemm")
    assert vcc("inspect", "kernel", digest, "--cubin", str(file)).code == 0
    assert file.read_bytes() == table_and_blobs()[1][f"cubin/{digest}"]


@pytest.mark.parametrize(
    ("name", "code", "what"),
    [
        ("0", Exit.USAGE, "too short"),
        ("ffff" * 3, Exit.NEGATIVE, "no kernel"),
    ],
)
def test_a_kernel_that_is_not_there_is_said(vcc, stored, name, code, what):
    done = vcc("inspect", "kernel", name)
    assert done.code == code
    assert what in done.err


def test_both_import_no_torch(spawn, stored):
    code = (
        "import sys\n"
        "from vcc.cli import main\n"
        f"code = main.run(['inspect', 'graph', 'demo']) or main.run(['inspect', 'kernel', "
        f"'{digest_of('gemm')}'])\n"
        "sys.exit(code or 'torch' in sys.modules)\n"
    )
    process = spawn(code=code)
    _, error = process.communicate()
    assert process.returncode == 0, error


def test_json_has_the_shape_of_the_page(vcc, stored):
    shown = shapes(PAGE.read_text())
    assert differences(shown["graph"], vcc("inspect", "graph", "demo", "--json").json) == []
    found = vcc("inspect", "kernel", digest_of("gemm"), "--json").json
    assert differences(shown["kernel"], found) == []


def test_artifact_shows_gpu_code_regions_and_measured_products(vcc, stored, monkeypatch):
    from vcc.engine.tune import store as tuning
    from vcc.engine.tune.shapes import GemmShape

    shape = GemmShape(1, 64, 64, "bfloat16")
    choice = tuning.GemmChoice("NVIDIA H200", 130000, shape, "triton", None, 3.25)
    assert "matrix products" not in vcc("inspect", "artifact", "demo").out
    monkeypatch.setattr(tuning, "choices", lambda store, loaded: (choice,))
    text = vcc("inspect", "artifact", "demo").out
    for part in ("3 in 2 cubins", "1 empty, 4 gemm", "graph sizes  1, 2, 4", "a block", "12.8"):
        assert part in text
    rows = [line.split() for line in text.splitlines()]
    assert ["NVIDIA", "H200", "1", "64", "64", "bfloat16", "triton", "-", "3.2"] in rows
    found = vcc("inspect", "artifact", "demo", "--json").json
    assert differences(shapes(PAGE.read_text())["artifact"], found) == []
    assert found["products"][0]["shape"]["n"] == 64


def test_of_tables_for_one_size_each_those_that_fit_are_shown():
    from support.tables import recorded

    from vcc.cache.errors import UsageError
    from vcc.cli.inspect_graph import summaries

    tables = {"a": recorded(), "b": table_and_blobs()[0]}
    assert list(summaries(tables, 8, None)) == ["a", "b"]
    assert list(summaries(tables, 9, None)) == ["b"]
    with pytest.raises(UsageError, match="T = 600"):
        summaries(tables, 600, None)


@pytest.mark.parametrize("words", [("--tokens", "64"), ("--seqs", "2")])
def test_a_size_that_the_graph_does_not_have_is_refused_by_name(vcc, own_store, words):
    table, blobs = table_and_blobs()
    nodes = tuple(one for one in table.nodes if one.kind.name == "EMPTY")
    plain = NodeTable(
        symbols=(),
        regions=(Region(RegionKind.WORKSPACE, 4096),),
        nodes=nodes,
        segments=(Segment(SegmentKind.PIECE, "forward", len(nodes)),),
    )
    assert nodes
    publish(Store.open(None), blobs | {"table/step": encode(plain)})
    done = vcc("inspect", "graph", "demo", *words)
    assert done.code == Exit.USAGE
    assert f"{' '.join(words)} is no size of this graph" in done.err
    assert "nothing, all of its sizes are fixed" in done.err
    assert vcc("inspect", "graph", "demo").code == 0
