"""The GEMM store on a real device: cuBLASLt's nodes recorded, kept, replayed bit by bit, chosen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.gpu_jobs import gemm_process, vcc

from vcc.cache.store import Store
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import Node
from vcc.engine.tune.command import record_apart
from vcc.engine.tune.job import Answer, Job
from vcc.engine.tune.record import FIRST, SECOND, operand_sizes
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmStore, choices

pytestmark = pytest.mark.gpu

WIDTHS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (320, 192))
"""n, k of an 8B decoder, and of something small and odd."""

ROWS = (1, 2, 3, 8, 16, 17, 64, 128, 512)
SHAPES = tuple(
    GemmShape(m, n, k, dtype, has_c)
    for n, k in WIDTHS
    for m in ROWS
    for dtype, has_c in (("bfloat16", False), ("bfloat16", True))
) + tuple(GemmShape(m, 320, 192, dtype) for m in ROWS for dtype in ("float16", "float32"))
TRIED = tuple(shape for shape in SHAPES if shape.n * shape.k < 32 << 20)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A store with all shapes, and what recording them said; the process's maps lie beside it."""
    root = tmp_path_factory.mktemp("gemm") / "store"
    gemm_process(Job(root, SHAPES), root.parent, "record", "answer.json", "maps")
    return root, Answer.of_dict(json.loads((root.parent / "answer.json").read_text()))


def test_every_product_is_recorded_and_the_self_test_passes(
    recorded: tuple[Path, Answer],
) -> None:
    _, answer = recorded
    refused = "\n".join(f"{one.shape}: {one.why}" for one in answer.refused)
    assert not answer.refused, f"{len(answer.refused)} of {len(SHAPES)} refused:\n{refused}"
    assert answer.self_test is not None
    assert answer.self_test.passed, answer.self_test.why
    assert answer.recorded == len(SHAPES)
    print(
        f"{answer.recorded} products of cuBLASLt {answer.cublaslt} in {answer.seconds:.2f} s, "
        f"{answer.bytes} bytes, {answer.self_test.products} tried by the self-test"
    )


def test_a_process_without_cublaslt_gives_its_bits_at_other_addresses(
    recorded: tuple[Path, Answer], tmp_path: Path
) -> None:
    root, _ = recorded
    for words in (("reference", root, "a.npz"), ("replay", root, "b.npz")):
        gemm_process(Job(root, TRIED), tmp_path, *words)
    with np.load(tmp_path / "a.npz") as one, np.load(tmp_path / "b.npz") as other:
        wrong = [
            f"{name}: {int((one[name] != other[name]).sum())} of {one[name].size} bytes"
            for name in one.files
            if not np.array_equal(one[name], other[name])
        ]
    assert not wrong, "\n".join(wrong)


def test_a_second_recording_is_the_same_bytes(
    recorded: tuple[Path, Answer], tmp_path: Path
) -> None:
    root, answer = recorded
    some = SHAPES[::7]
    record_apart(Job(tmp_path / "again", some))
    first = {one.shape: one for one in GemmStore(root).entries(answer.gpu, some)}
    again = {one.shape: one for one in GemmStore(tmp_path / "again").entries(answer.gpu)}
    # Of two choices of the library the faster is kept, and both may be as fast.
    same = [shape for shape in some if first[shape].workspace == again[shape].workspace]
    assert len(same) > len(some) / 2
    differing = [
        f"{shape}: {differences(first[shape].table, again[shape].table)}"
        for shape in same
        if first[shape].table != again[shape].table
    ]
    assert not differing, "these hold bytes that nobody wrote:\n" + "\n".join(differing)


def differences(one: bytes, other: bytes) -> list[str]:
    """Node, kernel, offset and both words of what differs between two tables of a product."""
    tables = decode(one), decode(other)
    found = []
    for index, nodes in enumerate(zip(*(table.nodes for table in tables), strict=True)):
        name = tables[0].kernels[nodes[0].target].function[:60]
        blocks = [stored_bytes(node) for node in nodes]
        found += [
            f"node {index} ({name}) byte {at}: {blocks[0][at]:#x} or {blocks[1].get(at, 0):#x}"
            for at in blocks[0]
            if blocks[0][at] != blocks[1].get(at, 0)
        ]
    return found


def stored_bytes(node: Node) -> dict[int, int]:
    """The words of a node's constant bytes by offset."""
    data = b"".join(one.value for one in node.params if isinstance(one.value, bytes))
    return {
        at: int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) // 8 * 8, 8)
    }


def host_ranges(maps: str) -> list[tuple[int, int]]:
    """Code, heap and stacks of a process above 4 GiB; the driver's own mappings are not private."""
    found = []
    for line in maps.splitlines():
        span, modes, *rest = line.split()
        start, end = (int(edge, 16) for edge in span.split("-"))
        if modes[0] == "r" and modes[3] == "p" and start >> 32 and "/dev/" not in " ".join(rest):
            found.append((start, end))
    return found


def test_stored_tables_hold_no_address(recorded: tuple[Path, Answer]) -> None:
    """Neither of the operands as they were recorded nor of the process that recorded them."""
    root, answer = recorded
    host = host_ranges((root.parent / "maps").read_text())
    assert len(host) > 10
    found = []
    for entry in GemmStore(root).entries(answer.gpu):
        sizes = operand_sizes(entry.shape, 1 << 25)
        invented = [
            (base, base + size)
            for bases in (FIRST, SECOND)
            for base, size in zip(bases, sizes, strict=True)
        ]
        for index, node in enumerate(decode(entry.table).nodes):
            for at, word in stored_bytes(node).items():
                if any(start <= word < end for start, end in (*invented, *host)):
                    found.append(f"{entry.shape} node {index} byte {at}: {word:#x}")
    assert not found, "\n".join(found[:20])


def test_tune_records_measures_and_chooses_for_an_artifact(tmp_path: Path) -> None:
    store = tmp_path / "store"
    options = ("--target", "sm_90", "--dtype", "bf16", "--max-num-seqs", 16)
    done = vcc("compile", "demo", *options, store=store)
    assert done.code == 0, done.text
    run = ("run", "demo", *options, "--require-warm", "--json")
    prompt = ("--prompt", "It is a truth", "--max-new-tokens", 16, "--temperature", 0)
    before = vcc(*run, *prompt, store=store)
    assert before.code == 0, before.text
    tuned = vcc("tune", "demo", "--json", store=store)
    assert tuned.code == 0, tuned.text
    (found,) = tuned.json["artifacts"]
    assert not found["trouble"], found["trouble"]
    assert not found["answer"]["refused"], json.dumps(found["answer"]["refused"], indent=1)
    assert found["measured"]
    assert all(one["stored_ns"] > 0 and one["variant_ns"] > 0 for one in found["measured"])
    artifacts = Store.open(store)
    (entry,) = artifacts.entries()
    kept = choices(GemmStore(store), artifacts.load(entry))
    assert len(kept) == len(found["measured"])
    for one in kept:
        print(one.shape, one.route, one.cublaslt_us, one.triton_us)
    after = vcc(*run, *prompt, store=store)
    assert after.code == 0, after.text
    assert "from the GEMM store" in after.text
