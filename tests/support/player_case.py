"""A toy step on the libcuda double, ready for tests of the native player."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from support.fake_cuda import Fake, Launch
from support.fake_cuda.fixtures import RawArena
from support.step_tables import CUBIN, DIGEST, Step, toy_step
from vcc.engine.runtime.player.handle import (
    DecodeCall,
    Inputs,
    Mode,
    Parts,
    PlayerHandle,
    Read,
    Shape,
)
from vcc.engine.runtime.player.layout import Layout

BLOCKS, SLOTS, RING = 64, 3, 16


@contextmanager
def playing(arena: RawArena, step: Step | None = None, **place: int) -> Iterator[PlayerHandle]:
    """A placed player; everything is given back afterwards."""
    handle = PlayerHandle(arena.handle, (step or toy_step()).data)
    try:
        handle.add_cubin(DIGEST, CUBIN)
        sizes = {"blocks": BLOCKS, "mapped": BLOCKS, "slots": SLOTS, "ring": RING} | place
        handle.place(*(sizes[name] for name in ("blocks", "mapped", "slots", "ring")))
        yield handle
    finally:
        handle.close()


def launched(fake: Fake, handle: PlayerHandle, shape: Shape, rows: int = 1) -> list[Launch]:
    """The kernels of one step."""
    fake.clear()
    handle.step(shape, rows, handle.slot(), Inputs.STEP, Read.NOTHING)
    return fake.launches()


def names(launches: Sequence[Launch]) -> list[str]:
    return [launch.name for launch in launches]


def plain(tokens: int, seqs: int, parts: Parts = Parts.NONE) -> Shape:
    return Shape(Mode.PLAIN, tokens, seqs, parts)


def full(tokens: int, seqs: int, parts: Parts = Parts.NONE) -> Shape:
    return Shape(Mode.FULL, tokens, seqs, parts)


def pieces(tokens: int, seqs: int, parts: Parts = Parts.NONE) -> Shape:
    return Shape(Mode.PIECEWISE, tokens, seqs, parts)


def write(handle: PlayerHandle, layout: Layout, name: str, values: Sequence[int]) -> None:
    """Put numbers at the start of a tensor on the device."""
    tensor = layout.tensor(name)
    dtype = {"int32": np.int32, "int64": np.int64, "float32": np.float32}[tensor.dtype]
    handle.write(tensor.address, np.array(values, dtype))


def read(handle: PlayerHandle, layout: Layout, name: str, count: int) -> list[int]:
    """The first 32-bit numbers of a tensor on the device."""
    data = handle.read(layout.tensor(name).address, 4 * count)
    found: list[int] = data.view(np.int32).tolist()
    return found


def decode_call(handle: PlayerHandle, rows: int, steps: int, **changes: object) -> DecodeCall:
    """A run without stops from a slot of zeros, with every sequence active."""
    fields: dict[str, object] = {
        "rows": rows,
        "steps": steps,
        "slot": handle.slot(),
        "changed": None,
        "stops": np.zeros(1, np.int32),
        "stop_start": np.zeros(rows + 1, np.int32),
        "finish": rows,
        "ahead": 1,
        "control": np.zeros(2, np.int64),
        "gaps": np.zeros(steps, np.int64),
    }
    return DecodeCall(**{**fields, **changes})  # type: ignore[arg-type]
