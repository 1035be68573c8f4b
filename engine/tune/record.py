"""Record matrix products: from cuBLASLt's own nodes to entries of the GEMM store.

Addresses are invented: nothing is allocated, nothing is launched, no weights are needed. (Of two
choices of the library `faster` keeps the faster one, which does launch them.) Each
product is recorded with its operands at two places and at the first again, on another stack and
with other bytes in dead memory each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.calls import (
    SMALL_WORKSPACE,
    Cubins,
    record_product,
    workspace_bytes,
)
from vcc.engine.graphs.recorder.draft import Draft
from vcc.engine.graphs.recorder.merge import merge
from vcc.engine.graphs.recorder.places import Move
from vcc.engine.graphs.table.bounds import scale_bytes
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.layout import DTYPES, STORED_ALIGNMENT
from vcc.engine.graphs.table.types import NodeTable, Region, RegionKind
from vcc.engine.tune.shapes import GemmShape, Refused
from vcc.engine.tune.storable import BLOCKS, scale_columns
from vcc.engine.tune.store import GemmEntry

A, W, C, D, WORKSPACE, A_SCALE, W_SCALE = range(7)
"""Indices of OPERAND regions."""

FIRST = (
    *(0x1357_9B24_6100, 0x2468_ACE0_3500, 0x31F3_5D17_9B00, 0x4C0F_EE51_7300),
    *(0x5B1D_2A97_C500, 0x61D7_4C3B_8F00, 0x6E59_B18D_2700),
)
SECOND = (
    *(0x16A9_D3C5_2F00, 0x2B97_4E83_6D00, 0x3805_91EB_4700, 0x4563_F02D_B900),
    *(0x52C1_7B6F_1D00, 0x64FB_2E95_A300, 0x6973_D84F_5B00),
)
"""Invented addresses: odd multiples of 256 that no small number or size looks like."""

SEGMENT = "gemm"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of recording several products; `noise` and `pointers` count words of all.

    `others` are the library's choices with a small workspace, where its own takes more.
    """

    entries: tuple[GemmEntry, ...]
    refused: tuple[Refused, ...]
    pointers: int = 0
    noise: int = 0
    others: tuple[GemmEntry, ...] = ()


def record(
    shapes: Iterable[GemmShape], progress: Callable[[GemmShape], None] = lambda shape: None
) -> Recorded:
    """Record products by the cuBLASLt that is open (`calls.open_cublaslt`), CUPTI watching.

    Args:
        shapes: what to record.
        progress: called before each.

    Raises:
        DeviceError: the device or a library failed; what cannot be stored is in the result.
    """
    cubins = Cubins()
    entries, others, refused, pointers, noise = [], [], [], 0, 0
    for shape in shapes:
        progress(shape)
        try:
            entry, found = _recorded(shape, cubins, small=False)
        except GraphError as error:
            refused.append(Refused(shape, str(error)))
            continue
        entries.append(entry)
        pointers, noise = pointers + found[0], noise + found[1]
        if entry.workspace > SMALL_WORKSPACE:
            with suppress(GraphError):  # the first one is there
                others.append(_recorded(shape, cubins, small=True)[0])
    return Recorded(tuple(entries), tuple(refused), pointers, noise, tuple(others))


def _recorded(
    shape: GemmShape, cubins: Cubins, *, small: bool
) -> tuple[GemmEntry, tuple[int, int]]:
    table, found = record_table(shape, cubins, small=small)
    used = {digest: cubins.bytes[digest] for digest, _ in table.cubins}
    return GemmEntry(shape, encode(table), used, _workspace(table), small), found


def record_table(
    shape: GemmShape, cubins: Cubins, *, small: bool = False
) -> tuple[NodeTable, tuple[int, int]]:
    """The node table of one product, with the numbers of its pointers and of zeroed bytes.

    Raises:
        GraphError: cuBLASLt's nodes hold what cannot be moved.
    """
    sizes = operand_sizes(shape, workspace_bytes(shape, small=small))
    used = [index for index, size in enumerate(sizes) if size]
    first, second = (_placed(bases, used) for bases in (FIRST, SECOND))
    drafts: list[Draft] = [
        record_product(shape, operands, turn, cubins, small=small)
        for turn, operands in enumerate((first, second, first))
    ]
    moves = [Move(at, first[i], second[i], sizes[i]) for at, i in enumerate(used)]
    merged = merge(SEGMENT, drafts[0], drafts[1], drafts[2], moves, one_process=True)
    table = NodeTable(
        regions=tuple(Region(RegionKind.OPERAND, sizes[i], i, STORED_ALIGNMENT) for i in used),
        cubins=tuple((digest, len(cubins.bytes[digest])) for digest in merged.digests),
        kernels=merged.kernels,
        nodes=merged.nodes,
        segments=merged.segments,
        edges=merged.edges,
    )
    return table, (merged.pointers, merged.noise)


def operand_sizes(shape: GemmShape, workspace: int) -> tuple[int, ...]:
    """Bytes of each operand, by its index; 0 for what a product does not have.

    Scales of blocks of w are as stored products read them: the columns of `storable.scale_columns`.
    """
    m, n, k, width = shape.m, shape.n, shape.k, DTYPES[shape.dtype]
    row = n * DTYPES[shape.out or shape.dtype]
    c = (row if shape.scales else m * row) if shape.has_c else 0
    left, right = scale_bytes(shape.scales, m, n, k) or (0, 0)
    if shape.scales == BLOCKS:
        across, pitch = scale_columns(k)
        right = right // across * pitch
    return m * k * width, n * k * width, c, m * row, workspace, left, right


def _workspace(table: NodeTable) -> int:
    return sum(int(one.size) for one in table.regions if one.index == WORKSPACE)


def _placed(bases: Sequence[int], used: Sequence[int]) -> list[int]:
    return [base if index in used else 0 for index, base in enumerate(bases)]
