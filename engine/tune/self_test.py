"""The self-test of a recording: stored nodes at other addresses against cuBLASLt, bit by bit.

Parameter blocks of cuBLAS kernels are undocumented, so every version of the library is judged anew
before anything of it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.calls import run_product, workspace_bytes
from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay, fill, read, write
from vcc.engine.graphs.table.decode import decode
from vcc.engine.tune.index import SelfTest
from vcc.engine.tune.operands import Bits, exact_part, operands_of
from vcc.engine.tune.record import D, operand_sizes
from vcc.engine.tune.shapes import GemmShape
from vcc.engine.tune.store import GemmEntry

MOST = 24
"""Products that are tried; more are thinned out evenly."""

LARGEST = 1 << 29
"""Bytes of operands of a product that is tried at most."""


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


def _difference(entry: GemmEntry) -> str:
    """What differs between the stored nodes and the library; empty when nothing does.

    A scaled product is held against arithmetic too, of which its values leave no doubt.
    """
    shape, table = entry.shape, decode(entry.table)
    sizes = operand_sizes(shape, workspace_bytes(shape))
    given = operands_of(shape)
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(DeviceBytes(size)).address if size else 0 for size in sizes
        ]
        for index, data in given.items():
            write(addresses[index], data)
        fill(addresses[D], 0xEE, sizes[D])
        run_product(shape, addresses)
        expected = read(addresses[D], sizes[D])
        if shape.scales and (wrong := inexact(shape, given, expected)):
            return wrong
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


def inexact(shape: GemmShape, given: dict[int, Bits], result: Bits) -> str:
    """Where a scaled product is not what arithmetic gives; empty where it is.

    Args:
        shape: the product.
        given: of `operands_of`.
        result: bytes of d.
    """
    rows, columns, wanted = exact_part(shape, given)
    found = result.view(wanted.dtype).reshape(shape.m, shape.n)[np.ix_(rows, columns)]
    wrong = int((found != wanted).sum())
    if not wrong:
        return ""
    return f"{wrong} of {wanted.size} exact results are others, with scales: {shape.scales}"
