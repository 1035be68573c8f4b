"""GPU code run on the CPU: value-checked on real architectures, and every kind of fault is named.

One table is built a family, in fp32; faults are put into a copy of what the build left.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from support.flow import ask
from support.gpu_artifacts import publish, table_and_blobs

from vcc.cache.errors import ConfigError, Exit, UsageError
from vcc.cache.store import Store
from vcc.engine import verify_interpret
from vcc.engine.config.environment import interpreter_environment
from vcc.engine.config.target import Target
from vcc.engine.events import NotedEvents, NullEvents
from vcc.engine.graphs.planner.content import GpuContent, read, write
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import Node, NodeKind, NodeTable, ParamKind, SegmentKind
from vcc.engine.ops.cuda import cubins
from vcc.engine.request import Settled, look_up, request_pairs, settle
from vcc.engine.verify_interpret import OutOfStep, interpret
from vcc.engine.verify_job import CONTENT, JOB, RESULT, Mismatch, Outcome

LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 48, "max_model_len": 64}


def request(folder: Path, arch: str, layers: int = 2, **options: object) -> Settled:
    """A tiny decoder of a family: its config alone, as weights are drawn."""
    fields = SIZES | OWN_SIZES[arch] | {"num_hidden_layers": layers, "model_type": arch}
    config = {"architectures": [ARCHITECTURES[arch]], "torch_dtype": "float32", **fields}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    given = {"weights": "none", "target": "sm_90", **LIMITS, **options}
    return settle(ask(folder, **given))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `--interpret` hands to its child for Gemma 2, which is interpreted here once."""
    folder = tmp_path_factory.mktemp("gemma2")
    kept = folder / "kept"
    settled = request(folder / "model", "gemma2")
    patch = pytest.MonkeyPatch()
    patch.setattr(verify_interpret, "_child", lambda place: _kept(place, kept))
    with pytest.raises(Exception, match="without a result"):
        interpret(settled, Store.open(folder / "store"), (11,), NullEvents())
    patch.undo()
    return kept


def _kept(place: Path, kept: Path) -> tuple[int, str]:
    place.rename(kept)
    place.mkdir()
    return 0, ""


def run(folder: Path) -> dict[str, Any]:
    """The child's result for a job folder."""
    done = subprocess.run(
        [sys.executable, "-m", verify_interpret.MODULE, str(folder)],
        env=interpreter_environment(folder),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / RESULT).read_text())


def test_a_gemma_step_is_the_models_in_every_kind_of_step(gemma: Path) -> None:
    found = run(gemma)
    assert "error" not in found, found
    outcome = Outcome.of({"steps": found["steps"], "mismatch": found["mismatch"]})
    assert outcome.mismatch is None
    graphs = {(one.graph, one.tokens, one.seqs) for one in outcome.steps}
    assert {("decode", 1, 1), ("mixed", 1, 1), ("loop", 4, 4), ("mixed", 11, 1)} <= graphs
    calls = {one.segments for one in outcome.steps}
    assert calls == {7}  # three pieces, and two operators a layer
    assert all(0 < one.error < 1e-5 for one in outcome.steps)


def test_every_table_of_a_step_with_ranges_is_checked_by_value(tmp_path: Path) -> None:
    """From the build to the answer: what a step of one writes into the cache, others read."""
    config = json.dumps({"compile_ranges": [2], "compile_sizes": [4]})
    settled = request(tmp_path / "model", "qwen3", layers=1, config=config)
    found = interpret(settled, Store.open(tmp_path / "store"), (), NullEvents())
    steps = {(one.graph, one.tokens) for one in found.outcome.steps}
    alone = {("mixed", 1), ("decode", 1), ("mixed", 3), ("decode", 3), ("mixed", 4), ("decode", 4)}
    assert alone <= steps, "each table, in pure decode and in other steps"
    assert max(one.error for one in found.outcome.steps) < 1e-5
    assert (found.target, found.rebuilt) == ("sm_90", None)
    assert set(found.as_dict()) == {"target", "rebuilt", "steps", "mismatch", "seconds"}


def changed(gemma: Path, folder: Path, change: Callable[[NodeTable], NodeTable]) -> dict[str, Any]:
    """The child's result for a copy with another table."""
    content: GpuContent = read(gemma / CONTENT)
    (step,) = content.steps
    table = encode(change(decode(step.table)))
    (folder / CONTENT).mkdir(parents=True)
    write(replace(content, steps=(replace(step, table=table),)), folder / CONTENT)
    (folder / JOB).write_bytes((gemma / JOB).read_bytes())
    return run(folder)


def with_node(table: NodeTable, index: int, node: Node) -> NodeTable:
    nodes = list(table.nodes)
    nodes[index] = node
    return replace(table, nodes=tuple(nodes))


def first(table: NodeTable, kind: NodeKind, after: int = 0) -> int:
    """The first node of a kind behind the loop's head."""
    head = table.segments[0].nodes if table.segments[0].kind is SegmentKind.ADVANCE else 0
    span = range(head + after, len(table.nodes))
    return next(i for i in span if table.nodes[i].kind is kind)


def other_weight(table: NodeTable) -> NodeTable:
    """The first matrix product reads its weight a row further on."""
    index = first(table, NodeKind.GEMM)
    node = table.nodes[index]
    row = 4 * table.gemms[node.target].k
    params = tuple(
        replace(one, value=one.value + row) if one.offset == 8 else one for one in node.params
    )
    return with_node(table, index, replace(node, params=params))


def fewer_blocks(table: NodeTable) -> NodeTable:
    """The first kernel covers one row only."""
    index = first(table, NodeKind.KERNEL)
    return with_node(table, index, replace(table.nodes[index], grid=(1, 1, 1)))


def out_of_order(table: NodeTable) -> NodeTable:
    """The first product runs before the kernel that makes its operand."""
    index = first(table, NodeKind.GEMM)
    nodes = list(table.nodes)
    nodes[index - 1], nodes[index] = nodes[index], nodes[index - 1]
    return replace(table, nodes=tuple(nodes))


def beyond(table: NodeTable) -> NodeTable:
    """A kernel writes at the end of the workspace."""
    index = first(table, NodeKind.KERNEL)
    node = table.nodes[index]
    size = {i: region.size for i, region in enumerate(table.regions)}
    params = tuple(
        replace(one, value=size[one.region])
        if one.kind is ParamKind.POINTER and one.access & 2
        else one
        for one in node.params
    )
    return with_node(table, index, replace(node, params=params))


@pytest.mark.parametrize("change", [other_weight, fewer_blocks, out_of_order])
def test_a_table_that_computes_something_else_is_told_by_its_first_segment(
    gemma: Path, tmp_path: Path, change: Callable[[NodeTable], NodeTable]
) -> None:
    found = changed(gemma, tmp_path, change)
    mismatch = found["mismatch"]
    table = decode(read(gemma / CONTENT).steps[0].table)
    pieces = [i for i, one in enumerate(table.segments) if one.kind is SegmentKind.PIECE]
    assert mismatch["name"] == table.segments[pieces[0]].name
    assert mismatch["error"] == -1 or mismatch["error"] > mismatch["allowed"]


def test_a_kernel_that_leaves_its_region_is_named(gemma: Path, tmp_path: Path) -> None:
    error = changed(gemma, tmp_path, beyond)["error"]
    assert error["id"] == "OUT_OF_REGION"
    assert "WORKSPACE" in error["what"]
    with pytest.raises(OutOfStep, match="WORKSPACE"):
        raise verify_interpret._error(error)


def test_a_mismatch_is_a_negative_answer_that_names_the_segment() -> None:
    mismatch = Mismatch("mixed", "mixed", 3, "vcc::kv_write", "kv_caches_0", -1.0, 1e-5)
    error = verify_interpret._differs(Outcome((), mismatch))
    assert error.exit is Exit.NEGATIVE
    assert "segment 3, vcc::kv_write" in error.what
    assert "kv_caches_0 is not finite" in error.why


def test_a_stored_artifact_must_be_what_a_build_gives(tmp_path: Path, monkeypatch) -> None:
    """Without a build: what a build would give is made up."""
    settled = request(tmp_path / "model", "qwen3")
    store = Store.open(tmp_path / "store")
    _, blobs = table_and_blobs()
    pairs, open_fields = request_pairs(settled)
    publish(store, blobs, request=tuple(sorted(pairs.items())), open_fields=open_fields)
    assert store.find(*look_up(settled))

    class Content:
        def __init__(self, made: dict[str, bytes]) -> None:
            self.made = made

        def blobs(self) -> dict[str, bytes]:
            return self.made

    monkeypatch.setattr(verify_interpret, "plan_in_child", lambda *given: Content(blobs))
    found = verify_interpret._rebuilt(settled, store, NullEvents())
    assert found is not None
    assert found.blobs == len(blobs)
    other = {**blobs, "table/step": b"other"}
    monkeypatch.setattr(verify_interpret, "plan_in_child", lambda *given: Content(other))
    with pytest.raises(OutOfStep, match="is not what a build gives") as caught:
        verify_interpret._rebuilt(settled, store, NullEvents())
    assert "table/step" in caught.value.why


def test_an_artifact_of_another_request_is_no_build_of_this_one(tmp_path: Path) -> None:
    """Nobody states the ops or, on a machine with that GPU, the target: anything answers."""
    custom = {"config": '{"custom_ops": ["+rms_norm"]}'}
    store = Store.open(tmp_path / "store")
    _, blobs = table_and_blobs()
    pairs, open_fields = request_pairs(request(tmp_path / "model", "qwen3", **custom))
    publish(store, blobs, request=tuple(sorted(pairs.items())), open_fields=open_fields)
    plain = request(tmp_path / "model", "qwen3")
    assert store.find(*look_up(plain))
    assert verify_interpret._rebuilt(plain, store, NullEvents()) is None


def test_kernels_of_custom_ops_compute_what_the_model_does(tmp_path: Path) -> None:
    """Triton's, which the interpreter runs, also where the build takes those of csrc."""
    settled = request(tmp_path / "model", "llama", layers=1, config='{"custom_ops": ["all"]}')
    heard = NotedEvents(NullEvents())
    found = interpret(settled, Store.open(tmp_path / "store"), (), heard)
    assert {step.segments for step in found.outcome.steps} == {4}
    assert len(found.outcome.steps) >= 8
    assert max(one.error for one in found.outcome.steps) < 1e-5
    assert {step.unmatched for step in found.outcome.steps} == {0}
    own = not cubins.missing("sm_90")
    assert own == any("Triton's kernels are run in place of csrc's" in one for one in heard.notes)


def test_only_gpu_code_of_decoders_can_be_interpreted(tmp_path: Path) -> None:
    settled = request(tmp_path / "model", "qwen3")
    store = Store.open(tmp_path / "store")
    cpu = replace(settled, request=replace(settled.request, target=Target.parse("cpu")))
    with pytest.raises(UsageError, match="--interpret is for GPU code"):
        interpret(cpu, store, (), NullEvents())
    with pytest.raises(UsageError, match="no step has 99999 tokens"):
        interpret(settled, store, (1, 99999), NullEvents())
    unknown = replace(settled, request=replace(settled.request, target=Target.parse("sm_70")))
    with pytest.raises(ConfigError, match="known: sm_80"):
        interpret(unknown, store, (), NullEvents())
