"""The self-test of a recording: stored nodes at other addresses against cuBLASLt, bit by bit.

Parameter blocks of cuBLAS kernels are undocumented, so every version of the library is judged anew
before anything of it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.calls import run_product, workspace_bytes
from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay, fill, read, write
from vcc.engine.graphs.table.decode import decode
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.record import D, operand_sizes
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry

MOST = 24
"""Products that are tried; more are thinned out evenly."""

LARGEST = 1 << 29
"""Bytes of operands of a product that is tried at most."""

PART = 1_000_003
"""Random values that are made; more are the same again."""


def self_test(entries: Sequence[GemmEntry]) -> SelfTest:
    """Try a recording.

    Args:
        entries: of one recording, made in this process, on the current device.

    Returns:
        Whether all that were tried gave equal bits; `why` names the first that did not.
    """
    tried = chosen(entries)
    for entry in tried:
        wrong = _difference(entry)
        if wrong:
            return SelfTest(False, len(tried), f"{entry.shape}: {wrong}")
    return SelfTest(True, len(tried))


def chosen(entries: Sequence[GemmEntry]) -> list[GemmEntry]:
    """At most `MOST` entries, spread over all, and none larger than `LARGEST`; each kernel once."""
    small = [entry for entry in entries if sum(operand_sizes(entry.shape, 0)) <= LARGEST]
    first: dict[frozenset[str], GemmEntry] = {}
    for entry in small:
        first.setdefault(frozenset(entry.cubins), entry)
    step = max(1, -(-len(small) // MOST))
    return list({id(entry): entry for entry in (*first.values(), *small[::step])}.values())


def operands_of(shape: GemmShape, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Random values of a, w and c as raw bits, uint16 or uint32, around the size of one."""
    counts = (shape.m * shape.k, shape.n * shape.k, shape.m * shape.n * shape.has_c)
    return [random_bits(count, shape.dtype, 3 * seed + i) for i, count in enumerate(counts)]


def random_bits(count: int, dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Normal values as raw bits; a long array repeats a part whose length no size divides."""
    values = np.random.default_rng(seed).standard_normal(min(count, PART), np.float32)
    return np.resize(_bits(values, dtype), count)


def _bits(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "float32":
        return values.view(np.uint32)
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def _difference(entry: GemmEntry) -> str:
    """What differs between the stored nodes and the library; empty when nothing does."""
    shape, table = entry.shape, decode(entry.table)
    sizes = operand_sizes(shape, workspace_bytes(shape))
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(DeviceBytes(size)).address if size else 0 for size in sizes
        ]
        for address, data in zip(addresses[:D], operands_of(shape), strict=True):
            if address:
                write(address, data)
        fill(addresses[D], 0xEE, sizes[D])
        run_product(shape, addresses)
        expected = read(addresses[D], sizes[D])
        fill(addresses[D], 0xEE, sizes[D])
        replay = Replay(Functions(entry.cubins))
        try:
            replay.add(table, [addresses[region.index] for region in table.regions], {})
            replay.instantiate().launch()
        except GraphError as error:
            return str(error)
        finally:
            replay.close()
        differing = int((read(addresses[D], sizes[D]) != expected).sum())
    return f"{differing} of {sizes[D]} bytes differ" if differing else ""
