"""Time matrix products both ways on the current device: stored cuBLASLt nodes, and Triton kernels.

A graph computes the product several times with different copies of the weights, more of them than
the second-level cache holds, as the layers of a model do. What is measured is the device, by events
around the graph; inputs are random bits of ordinary size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass

from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay, write
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.layout import DTYPES, SCALE_BLOCK
from vcc.engine.graphs.table.types import NONE, NodeTable, Variant
from vcc.engine.graphs.table.variants import variant_for
from vcc.engine.tune.index import STORED, VARIANT
from vcc.engine.tune.operands import random_bits
from vcc.engine.tune.record import A_SCALE, W_SCALE, WORKSPACE, A, C, D, W, operand_sizes
from vcc.engine.tune.shapes import GemmShape, Measured
from vcc.engine.tune.storable import BLOCKS, scale_columns
from vcc.engine.tune.store import GemmEntry

COLD = 160 << 20
"""Bytes of weights that a graph goes through: more than a cache holds."""

FEWEST, MOST = 4, 32
"""Products in a graph."""

ROUNDS = 3
BLOCK = 4 << 20
"""Bytes of random values that are copied all over the operands."""

REDUCE_COLUMNS = 1024
"""Columns that one program of a reducing kernel sums."""

PARTIAL_BYTES, SCALE_BYTES = 4, 4

SPREAD_LANES = 256
"""Columns that one program of a kernel which spreads scales writes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Device memory of one product: addresses by index of the operand, and of each copy of w."""

    at: tuple[int, ...]
    w: tuple[int, ...]

    def reading(self, w: int) -> tuple[int, ...]:
        """The addresses with this copy of w."""
        return (*self.at[:W], w, *self.at[W + 1 :])


def measure(
    shape: GemmShape, table: NodeTable, cubins: Mapping[str, bytes], entry: GemmEntry | None
) -> Measured:
    """Time a product.

    Args:
        shape: the product.
        table: the step table of an artifact, for its Triton kernels.
        cubins: their code, by SHA-256 in hex.
        entry: the stored nodes, if there are any.

    Returns:
        Nanoseconds both ways and the faster one; ties go to the stored nodes.

    Raises:
        DeviceError: out of memory, or a launch failed.
    """
    rows, *family = astuple(shape)
    variant = variant_for(table, tuple(family), rows)
    if shape.scales == BLOCKS and (variant is None or variant.reduce_kernel == NONE):
        entry = None  # a table of before, whose scales no stored product reads
    spare = max(
        entry.workspace if entry else 0, 0 if variant is None else partial_bytes(variant, shape)
    )
    with ExitStack() as stack:
        place = _placed(shape, spare, stack)
        stored, other = -1, -1
        if entry is not None:
            spreading = _spreading(shape, table, variant, place, stack)
            code = {**entry.cubins, **cubins} if spreading else entry.cubins
            stored = _time(_stored(entry, place, spreading), Functions(code), place)
        if variant is not None:
            other = _time(_launching(table, variant, shape, place), Functions(cubins), place)
    return Measured(shape, faster(stored, other), stored, other)


def time_entry(entry: GemmEntry) -> int:
    """Nanoseconds of stored nodes alone.

    Raises:
        DeviceError: out of memory, or a launch failed.
    """
    with ExitStack() as stack:
        place = _placed(entry.shape, entry.workspace, stack)
        return _time(_stored(entry, place, None), Functions(entry.cubins), place)


def faster(stored_ns: int, variant_ns: int) -> str:
    """The route to take; -1 says that one does not exist."""
    if stored_ns < 0:
        return VARIANT
    return STORED if variant_ns < 0 or stored_ns <= variant_ns else VARIANT


def partial_bytes(variant: Variant, shape: GemmShape) -> int:
    """Bytes of the partial products of a split sum."""
    split = variant.split_k if variant.split_k > 1 else 0
    return split * shape.m * shape.n * PARTIAL_BYTES


def variant_grid(variant: Variant, shape: GemmShape) -> tuple[int, int, int]:
    """Programs of the product's kernel."""
    across, down = -(-shape.n // variant.tile_n), -(-shape.m // variant.tile_rows)
    return (across * down, 1, 1) if shape.scales else (across, down, variant.split_k)


def variant_block(shape: GemmShape, operands: Sequence[int]) -> bytes:
    """Parameters of `layout.VARIANT_PARAM_BYTES`, for addresses by the index of the operand."""
    a, w, c, d, spare, a_scale, w_scale = operands
    if shape.scales:
        return struct.pack("<6Qi4x2Q", a, w, a_scale, w_scale, c, d, shape.m, 0, 0)
    return struct.pack("<5Q3i4x2Q", a, w, c, d, spare, shape.m, shape.n, shape.k, 0, 0)


def reduce_block(shape: GemmShape, partials: int, c: int, d: int) -> bytes:
    """Parameters of the kernel that sums partial products: partials, c, d; rows, n; two null."""
    return struct.pack("<3Q2i2Q", partials, c, d, shape.m, shape.n, 0, 0)


def copies_of(shape: GemmShape) -> int:
    """How many copies of the weights a graph goes through."""
    width = operand_sizes(shape, 0)[W]
    return max(1, min(MOST, -(-COLD // width)))


def _placed(shape: GemmShape, spare: int, stack: ExitStack) -> Place:
    sizes = operand_sizes(shape, spare)
    count = copies_of(shape)

    def room(size: int) -> int:
        return stack.enter_context(DeviceBytes(size)).address if size else 0

    weights = tuple(room(sizes[W]) for _ in range(count))
    place = Place(tuple(0 if i == W else room(size) for i, size in enumerate(sizes)), weights)
    read = [(place.at[i], sizes[i]) for i in (A, C, A_SCALE, W_SCALE)]
    _fill(shape, [*read, *((one, sizes[W]) for one in weights)])
    return place


def _fill(shape: GemmShape, targets: Sequence[tuple[int, int]]) -> None:
    """Random values in every range, by copies on the device: weights of a head are gigabytes."""
    with DeviceBytes(BLOCK) as source:
        write(source.address, random_bits(BLOCK // DTYPES[shape.dtype], shape.dtype, seed=0))
        copies = Replay(Functions({}))
        for target, size in targets:
            for at in range(0, size, BLOCK):
                copies.copy_own(target + at, source.address, min(BLOCK, size - at))
        copies.instantiate().launch()
        copies.close()


Adder = Callable[[Replay, int], None]
"""Appends one product that reads the given copy of the weights."""


def _stored(entry: GemmEntry, place: Place, spreading: Adder | None) -> Adder:
    table = decode(entry.table)

    def add(replay: Replay, w: int) -> None:
        if spreading is not None:
            spreading(replay, w)
        operands = place.reading(w)
        replay.add(table, [operands[region.index] for region in table.regions], {})

    return add


def _spreading(
    shape: GemmShape, table: NodeTable, variant: Variant | None, place: Place, stack: ExitStack
) -> Adder | None:
    """What a player launches before a stored product, for scales of w that it reads elsewhere."""
    across, pitch = scale_columns(shape.k)
    if shape.scales != BLOCKS or variant is None or across == pitch:
        return None
    down = -(-shape.n // SCALE_BLOCK)
    dense = stack.enter_context(DeviceBytes(SCALE_BYTES * down * across)).address
    block = struct.pack("<2Q3i4x2Q", dense, place.at[W_SCALE], across, down, pitch, 0, 0)
    grid = (-(-across // SPREAD_LANES), down, 1)
    _fill(shape, [(dense, SCALE_BYTES * down * across)])

    def add(replay: Replay, w: int) -> None:
        replay.launch_own(table.kernels[variant.reduce_kernel], grid, block)

    return add


def _launching(table: NodeTable, variant: Variant, shape: GemmShape, place: Place) -> Adder:
    split = variant.split_k > 1

    def add(replay: Replay, w: int) -> None:
        block = variant_block(shape, place.reading(w))
        replay.launch_own(table.kernels[variant.kernel], variant_grid(variant, shape), block)
        if split:
            grid = (-(-shape.n // REDUCE_COLUMNS), shape.m, 1)
            block = reduce_block(shape, *(place.at[i] for i in (WORKSPACE, C, D)))
            replay.launch_own(table.kernels[variant.reduce_kernel], grid, block)

    return add


def _time(add: Adder, functions: Functions, place: Place) -> int:
    """Nanoseconds of one product."""
    count = max(FEWEST, len(place.w))
    replay = Replay(functions)
    try:
        for index in range(count):
            add(replay, place.w[index % len(place.w)])
        replay.instantiate().launch()
        best = min(replay.launch() for _ in range(ROUNDS))
    finally:
        replay.close()
    return round(best * 1e3 / count)
