"""Check piece goldens on a device: do its cubins compute there what the model says?

A golden brings a table of one call of its piece. It is played in memory of its own, with the
step's modules, on arguments that are drawn again here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.drawn_bytes import DRAWABLE, draw_bytes, widened
from vcc.engine.graphs.golden import Array, Golden, WrongResult, exceeds
from vcc.engine.runtime.player.handle import Inputs, Mode, Parts, PlayerHandle, Read, Shape

if TYPE_CHECKING:
    from vcc.cache.loaded import Loaded

GOLDEN = "golden/"
ONCE = Shape(Mode.PLAIN, 1, 1, Parts.ADAPTED)
UNWRITTEN = 0xFF
"""Every byte of a result before the call: no number in all float types."""


def check_goldens(loaded: Loaded, handle: PlayerHandle, which: str) -> int:
    """Check no golden, the cheapest, or all.

    Args:
        loaded: the artifact.
        handle: a player that has the artifact's cubins.
        which: "off", "one" or "all".

    Returns:
        How many were checked.

    Raises:
        IntegrityError: a piece's result is outside its golden's bound; it is named.
    """
    cheapest = sorted(_costs(loaded).items(), key=lambda item: (item[1], item[0]))
    count = {"off": 0, "one": 1}.get(which, len(cheapest))
    for piece, _ in cheapest[:count]:
        check_golden(handle, piece, Golden.decode(loaded.read(GOLDEN + piece)))
    return min(count, len(cheapest))


def _costs(loaded: Loaded) -> dict[str, int]:
    """Bytes to draw for each golden; those of the blob where the manifest does not say."""
    found = loaded.manifest.info.get("goldens")
    said = found if isinstance(found, dict) else {}
    blobs = loaded.manifest.blobs
    names = [name.removeprefix(GOLDEN) for name in blobs if name.startswith(GOLDEN)]
    costs = {name: said.get(name) for name in names}
    return {n: c if isinstance(c, int) else blobs[GOLDEN + n].size for n, c in costs.items()}


def check_golden(handle: PlayerHandle, piece: str, golden: Golden) -> None:
    """Play one golden.

    Args:
        handle: a player that has the cubins.
        piece: its id.
        golden: of a GPU artifact.

    Raises:
        IntegrityError: the result differs, or the golden is none of a GPU.
    """
    bad = [one.dtype for one in golden.arguments if one.dtype not in DRAWABLE]
    if not golden.table or bad:
        raise IntegrityError("golden refused", f"that of piece {piece[:12]} is not for a player")
    results = played(handle, piece, golden)
    for index, (got, bound) in enumerate(zip(results, golden.bounds, strict=True)):
        if why := exceeds(got, golden.references[index], bound):
            raise WrongResult(
                f"piece {piece[:12]} computes something else on this device",
                f"output {index}: {why}",
                "rebuild it: vcc compile",
            )


def played(handle: PlayerHandle, piece: str, golden: Golden) -> list[Array]:
    """The results of one call of a piece on the device, in output order, as fp32.

    Raises:
        IntegrityError: table and golden do not go together.
        DeviceError: the call failed.
    """
    small = handle.apart(golden.table)
    try:
        small.place(1, 1, 1, 1)
        found = {one["name"]: one for one in small.describe()["tensors"]}
        names = [str(index) for index in range(len(golden.arguments))]
        if missing := [name for name in names if name not in found]:
            raise IntegrityError("golden refused", f"its table has no tensor {missing[0]}")
        first = len(names) - len(golden.references)
        _fill(small, piece, golden, [found[name] for name in names[:first]])
        for one in (found[name] for name in names[first:]):
            small.write(one["address"], np.full(one["bytes"], UNWRITTEN, np.uint8))
        small.step(ONCE, 1, small.slot(), Inputs.NONE, Read.NOTHING)
        return list(_read(small, golden, [found[name] for name in names[first:]]))
    finally:
        small.close()


def _fill(
    small: PlayerHandle, piece: str, golden: Golden, places: Sequence[Mapping[str, Any]]
) -> None:
    for index, (one, place) in enumerate(zip(golden.arguments, places, strict=False)):
        data = draw_bytes(piece, index, one, golden.below)
        if data.nbytes != place["bytes"]:
            raise IntegrityError("golden refused", f"argument {index} has another size")
        if data.nbytes:
            small.write(place["address"], data)


def _read(
    small: PlayerHandle, golden: Golden, places: Sequence[Mapping[str, Any]]
) -> Iterator[Array]:
    outs = golden.arguments[len(golden.arguments) - len(places) :]
    for one, stride, place in zip(outs, golden.strides, places, strict=True):
        flat = widened(small.read(place["address"], place["bytes"]), one.dtype)
        reach = sum((size - 1) * step for size, step in zip(one.shape, stride, strict=True))
        if 0 not in one.shape and reach >= len(flat):
            raise IntegrityError("golden refused", "a result lies outside its memory")
        steps = [4 * step for step in stride]
        yield np.lib.stride_tricks.as_strided(flat, one.shape, steps, writeable=False)
