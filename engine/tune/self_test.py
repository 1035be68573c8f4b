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
from vcc.engine.tune.shapes import GemmShape, Refused
from vcc.engine.tune.storable import BLOCKS, scale_columns
from vcc.engine.tune.store import GemmEntry

Form = tuple[str, bool, str, str, bool]
"""Type of the factors, whether something is added, type of the result, scales, and of these whether
those of the weight have columns more."""

MOST = 24
"""Products that are tried; more are thinned out evenly."""

LARGEST = 1 << 29
"""Bytes of operands of a product that is tried at most."""


def self_test(entries: Sequence[GemmEntry]) -> tuple[SelfTest, tuple[Refused, ...]]:
    """Try a recording.

    Args:
        entries: of one recording, made in this process, on the current device.

    Returns:
        Whether all that were tried gave the library's own bits, `why` names the first that did not;
        and the products of fp8 whose form the library itself gets wrong: they are not to be stored.
    """
    tried, wrong_forms = chosen(entries), dict[Form, str]()
    for entry in tried:
        form = form_of(entry.shape)
        differing, wrong = _tried(entry) if form not in wrong_forms else ("", "")
        if wrong:
            wrong_forms[form] = f"cuBLASLt is not exact, {entry.shape}: {wrong}"
        elif differing:
            return SelfTest(False, len(tried), f"{entry.shape}: {differing}"), ()
    given_up = [entry.shape for entry in entries if form_of(entry.shape) in wrong_forms]
    refused = tuple(Refused(shape, wrong_forms[form_of(shape)]) for shape in given_up)
    return SelfTest(True, len(tried)), refused


def form_of(shape: GemmShape) -> Form:
    """What products have in common that a library gets right or wrong alike."""
    across, pitch = scale_columns(shape.k)
    wider = shape.scales == BLOCKS and across != pitch
    return shape.dtype, shape.has_c, shape.out, shape.scales, wider


def chosen(entries: Sequence[GemmEntry]) -> list[GemmEntry]:
    """At most `MOST` entries, spread over all, none above `LARGEST`; each kernel and form once."""
    small = [entry for entry in entries if sum(operand_sizes(entry.shape, 0)) <= LARGEST]
    first: dict[object, GemmEntry] = {}
    for entry in small:
        first.setdefault(frozenset(entry.cubins), entry)
        first.setdefault(form_of(entry.shape), entry)
    step = max(1, -(-len(small) // MOST))
    return list({id(entry): entry for entry in (*first.values(), *small[::step])}.values())


def _tried(entry: GemmEntry) -> tuple[str, str]:
    """What differs between the stored nodes and the library, and what is wrong with the library.

    Both are empty when nothing is. A scaled product is held against arithmetic, of which its values
    leave no doubt.
    """
    shape, table = entry.shape, decode(entry.table)
    sizes = operand_sizes(shape, workspace_bytes(shape, small=entry.small))
    given = operands_of(shape)
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(DeviceBytes(size)).address if size else 0 for size in sizes
        ]
        for index, data in given.items():
            write(addresses[index], data)
        fill(addresses[D], 0xEE, sizes[D])
        run_product(shape, addresses, small=entry.small)
        expected = read(addresses[D], sizes[D])
        if shape.scales and (wrong := inexact(shape, given, expected)):
            return "", wrong
        fill(addresses[D], 0xEE, sizes[D])
        replay = Replay(Functions(entry.cubins))
        try:
            replay.add(table, [addresses[region.index] for region in table.regions], {})
            replay.instantiate().launch()
        except GraphError as error:
            return str(error), ""
        finally:
            replay.close()
        differing = int((read(addresses[D], sizes[D]) != expected).sum())
    return (f"{differing} of {sizes[D]} bytes differ" if differing else ""), ""


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
