"""A decoder's step as a small node table with cubins for the libcuda double.

Piece, kv_write, attention (one node for decode, one for other steps), piece with the logits'
product, and the decode loop's head and tail. Kernels take what those of the engine take, in less.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from vcc.engine.graphs.table.encode import encode
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
    Role,
    Segment,
    SegmentKind,
    Symbol,
    TableTensor,
    Variant,
    When,
)

from .fake_cuda.cubins import cubin

TOKENS, SEQS, BLOCKS_EACH, BLOCK, VOCAB, HIDDEN, MOST_BLOCKS = 64, 8, 4, 4, 32, 16, 1 << 17
CACHE_BLOCK = BLOCK * 2 * 4 * 2  # bytes: slots, heads, head_dim, bf16

POINTERS3 = (8, 8, 8, 4)
GEMM_PARAMS, REDUCE_PARAMS = (8,) * 5 + (4,) * 3 + (8,) * 2, (8,) * 3 + (4,) * 2 + (8,) * 2
KERNELS = {
    "norm": POINTERS3,
    "kv_write": POINTERS3,
    "decode_attention": POINTERS3,
    "mixed_attention": POINTERS3,
    "advance": POINTERS3,
    "sample": POINTERS3,
    "gemm": GEMM_PARAMS,
    "gemm_reduce": REDUCE_PARAMS,
}
CUBIN = cubin(KERNELS)
DIGEST = hashlib.sha256(CUBIN).hexdigest()
WEIGHTS, CACHE, IO, WORKSPACE, SCRATCH = range(5)

STEP_INPUTS = (
    ("input_ids", ("T",)),
    ("positions", ("T",)),
    ("slot_mapping", ("T",)),
    ("block_table", ("B", BLOCKS_EACH)),
    ("seq_lens", ("B",)),
    ("query_start", (["+", "B", 1],)),
    ("logits_index", ("B",)),
)
LORA_INPUT = (("lora_slot", ("T",)),)
SAMPLING = (
    ("temperature", "float32"),
    ("top_p", "float32"),
    ("top_k", "int32"),
    ("seed", "int64"),
    ("request", "int32"),
    ("step", "int32"),
    ("active", "int32"),
    ("token", "int32"),
)
SIZES = {"float32": 4, "int32": 4, "int64": 8}


@dataclass(frozen=True, slots=True)
class Step:
    """A table and the cubin it names."""

    table: NodeTable

    @property
    def data(self) -> bytes:
        return encode(self.table)


def _io(adapted: bool) -> tuple[list[TableTensor], int]:
    largest = {"T": TOKENS, "B": SEQS}
    tensors, at = [], 0
    for name, shape in (*STEP_INPUTS, *(LORA_INPUT if adapted else ())):
        count = 1
        for size in shape:
            count *= largest.get(size, size) if not isinstance(size, list) else SEQS + 1
        tensors.append(TableTensor(name, name, Role.INPUT, "int32", IO, at, shape))
        at += -(-count * 4 // 256) * 256
    for name, dtype in SAMPLING:
        role = Role.STATE if name == "token" else Role.INPUT
        tensors.append(TableTensor(name, name, role, dtype, IO, at, ("B",)))
        at += -(-SEQS * SIZES[dtype] // 256) * 256
    tensors.append(TableTensor("logits", "logits", Role.OUTPUT, "bfloat16", IO, at, ("B", VOCAB)))
    return tensors, at + SEQS * VOCAB * 2


def _pointers(*places: tuple[int, object], count: object) -> tuple[Param, ...]:
    pointers = [
        Param(ParamKind.POINTER, READ | WRITE, 8 * index, region, offset)
        for index, (region, offset) in enumerate(places)
    ]
    return (*pointers, Param(ParamKind.I32, 0, 24, NONE, count))


def _kernel_node(name: str, *places: tuple[int, object], count: object, when: When) -> Node:
    target = list(KERNELS).index(name)
    return Node(NodeKind.KERNEL, when, target, (count, 1, 1), _pointers(*places, count=count))


def _gemm_node(target: int, a: tuple[int, object], d: tuple[int, object]) -> Node:
    spots = ((0, a, READ), (8, (WEIGHTS, 0), READ), (24, d, WRITE))
    params = tuple(
        Param(ParamKind.POINTER, access, offset, region, place)
        for offset, (region, place), access in spots
    )
    return Node(NodeKind.GEMM, When.ALWAYS, target, (), params)


def toy_step(
    *,
    split_k: int = 1,
    variants: bool = True,
    layers: int = 1,
    tokens: tuple[int, int] = (1, TOKENS),
    adapted: bool = False,
) -> Step:
    """The table.

    Args:
        tokens: the range of T; tables of other ranges lie over the same memory.
        split_k: of the Triton route; above 1 there is a second kernel.
        variants: whether the table can compute its products itself.
        layers: kv_write and attention so often, a piece between each two.
        adapted: the first piece has a node for steps with adapters, and there are their slots.
    """
    io, io_bytes = _io(adapted)
    where = {tensor.name: (IO, tensor.offset) for tensor in io}
    hidden = (WORKSPACE, 0)

    def node(
        name: str, *places: tuple[int, object], count: object, when: When = When.ALWAYS
    ) -> Node:
        return _kernel_node(name, *places, count=count, when=when)

    cache_bytes = 2 * CACHE_BLOCK
    caches = [["*", ["*", "K", cache_bytes], layer] if layer else 0 for layer in range(layers)]
    nodes = [node("norm", where["input_ids"], (WEIGHTS, 0), hidden, count="T")]
    nodes.append(_gemm_node(0, hidden, (WORKSPACE, 8192)))
    if adapted:
        slots = where["lora_slot"]
        nodes.append(node("norm", hidden, slots, hidden, count="T", when=When.ADAPTED))
    segments = [Segment(SegmentKind.PIECE, "1" * 16, len(nodes))]
    for layer in range(layers):
        kv = (CACHE, caches[layer])
        nodes += [
            node("kv_write", hidden, kv, where["slot_mapping"], count="T"),
            node("decode_attention", hidden, kv, where["seq_lens"], count="B", when=When.UNIFORM),
            node("mixed_attention", hidden, kv, where["seq_lens"], count="T", when=When.MIXED),
        ]
        segments += [
            Segment(SegmentKind.OP, "vcc::kv_write", 1),
            Segment(SegmentKind.OP, "vcc::paged_attention", 2),
        ]
        if layer < layers - 1:
            nodes.append(node("norm", hidden, (WEIGHTS, 0), hidden, count="T"))
            segments.append(Segment(SegmentKind.PIECE, "2" * 16, 1))
    nodes += [
        node("norm", hidden, (WEIGHTS, 0), hidden, count="B"),
        _gemm_node(1, hidden, where["logits"]),
    ]
    segments.append(Segment(SegmentKind.PIECE, "3" * 16, 2))
    nodes.append(node("advance", where["token"], where["positions"], where["step"], count="B"))
    segments.append(Segment(SegmentKind.ADVANCE, "advance", 1))
    nodes.append(node("sample", where["logits"], where["token"], where["step"], count="B"))
    segments.append(Segment(SegmentKind.SAMPLE, "sample", 1))
    # The head of the loop comes first.
    order = [len(nodes) - 2, *range(len(nodes) - 2), len(nodes) - 1]
    kernels = tuple(
        Kernel(DIGEST, name, (128, 1, 1), 0, _bytes(sizes)) for name, sizes in KERNELS.items()
    )
    names = list(KERNELS)
    reduce_kernel = names.index("gemm_reduce") if split_k > 1 else NONE
    made = [
        Variant(n, HIDDEN, "bfloat16", names.index("gemm"), 16, 32, split_k, 0, reduce_kernel)
        for n in (HIDDEN, VOCAB)
    ]
    cache_shape = (2, "K", BLOCK, 2, 4)
    tensors = [
        TableTensor("w", "w", Role.WEIGHT, "bfloat16", WEIGHTS, 0, (VOCAB, HIDDEN)),
        *io,
        *(
            TableTensor(
                f"kv_cache_{i}", f"kv_cache_{i}", Role.CACHE, "bfloat16", CACHE, place, cache_shape
            )
            for i, place in enumerate(caches)
        ),
    ]
    table = NodeTable(
        symbols=(
            Symbol("T", *tokens),
            Symbol("B", 1, SEQS),
            Symbol("K", 1, MOST_BLOCKS),
        ),
        regions=(
            Region(RegionKind.WEIGHTS, VOCAB * HIDDEN * 2),
            Region(RegionKind.KV_CACHE, ["*", "K", layers * cache_bytes]),
            Region(RegionKind.IO, io_bytes),
            Region(RegionKind.WORKSPACE, 16384),
            Region(RegionKind.SCRATCH, 4 * split_k * TOKENS * VOCAB),
        ),
        tensors=tuple(tensors),
        cubins=((DIGEST, len(CUBIN)),),
        kernels=kernels,
        nodes=tuple(nodes[index] for index in order),
        gemms=(
            Gemm("T", HIDDEN, HIDDEN, "bfloat16"),
            Gemm("B", VOCAB, HIDDEN, "bfloat16"),
        ),
        variants=tuple(made) if variants else (),
        segments=(segments[-2], *segments[:-2], segments[-1]),
    )
    return Step(table)


def _bytes(sizes: tuple[int, ...]) -> int:
    end = 0
    for size in sizes:
        end = -(-end // size) * size + size
    return end


def with_table(step: Step, **changes: object) -> Step:
    """The same step with parts of its table replaced."""
    return Step(replace(step.table, **changes))
