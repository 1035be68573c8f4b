"""Prove a recording: `python -m vcc.engine.graphs.recorder.check_process FOLDER ORDINAL`.

A process of its own without torch places the regions anywhere, fills them as the capture did,
poisons the workspace and the outputs, replays every table and compares the output with torch's own
graph, bit by bit. The folder holds recording.json, table files, cubins, constants and answers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from vcc.cache.errors import VccError
from vcc.engine.graphs.recorder import samples
from vcc.engine.graphs.recorder.calls import open_driver
from vcc.engine.graphs.recorder.plan import (
    IO,
    KV_CACHE,
    WEIGHTS,
    WORKSPACE,
    Descriptor,
    Recording,
)
from vcc.engine.graphs.recorder.replay import DeviceBytes, Functions, Replay, read, write
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NodeTable, Role

RECORDING, RESULT = "recording.json", "check.json"
POISON = 0xFF
"""Not a number in every floating-point type, and no index."""

STEP = 1 << 16
SHIFTS = (0x3C00, 0x1400, 0x7400, 0x4C00)
"""Bytes from a multiple of `STEP` to each region.

Captures lie at odd multiples of 512, these at even ones: what a capture made of an address modulo
1,024 is the same in all three, and another number here.
"""

REPEATS = 2


def check(folder: Path, ordinal: int) -> dict[str, Any]:
    """Replay everything; `wrong` names descriptors whose output differs, `microseconds` all.

    Raises:
        DeviceError, GraphError: a table could not be built or launched.
    """
    open_driver(ordinal)
    recording = Recording.parse((folder / RECORDING).read_text("utf-8"))
    tables = {d: decode((folder / f"{d.file}.table").read_bytes()) for d in recording.descriptors}
    cubins = {file.name: file.read_bytes() for file in (folder / "cubin").iterdir()}
    functions = Functions(cubins)
    wrong, times = [], {}
    with ExitStack() as stack:
        sizes = _sizes(list(tables.values()))
        memory = _memory(sizes, stack)
        state = State(recording, memory, sizes, stack)
        state.fill_weights(folder)
        for descriptor, table in tables.items():
            replay = Replay(functions)
            replay.add(table, memory, {})
            replay.instantiate()
            for _ in range(REPEATS):  # the same from a fresh state each time
                state.reset(descriptor)
                times[descriptor.file] = replay.launch()
                if found := _difference(folder, recording, descriptor, memory):
                    wrong.append(f"{descriptor.file}: {found}")
                    break
            replay.close()
    return {"wrong": wrong, "microseconds": times, "torch": "torch" in sys.modules}


def _sizes(tables: Sequence[NodeTable]) -> list[int]:
    """Bytes of each region, the same in all tables."""
    return [max(int(table.regions[index].size) for table in tables) for index in range(4)]


def _memory(sizes: Sequence[int], stack: ExitStack) -> list[int]:
    """Where each region lies: at an odd multiple of 1,024, and no more, wherever the driver gives.

    A number that was made of an address and zeroed is seen only where zero is not right. The last
    region comes first: what a capture learnt of the order of two addresses is otherwise here.
    """
    spans = [-(-(size + shift) // STEP) * STEP for size, shift in zip(sizes, SHIFTS, strict=True)]
    block = stack.enter_context(DeviceBytes(sum(spans) + STEP)).address
    first = -(-block // STEP) * STEP
    return [first + sum(spans[index + 1 :]) + shift for index, shift in enumerate(SHIFTS)]


class State:
    """The regions as a step finds them: filled by copies on the device, so size costs little."""

    def __init__(
        self, recording: Recording, memory: Sequence[int], sizes: Sequence[int], stack: ExitStack
    ) -> None:
        dtypes = {slot.dtype for slot in recording.weights if slot.role is Role.WEIGHT}
        self._recording, self._memory, self._sizes = recording, memory, sizes
        self._sources = []
        for seed in (WEIGHTS, KV_CACHE):
            source = stack.enter_context(DeviceBytes(samples.BLOCK)).address
            write(source, samples.block(min(dtypes, default="float32"), seed))
            self._sources.append(source)
        self._reset = self._copies(KV_CACHE)
        for region in (IO, WORKSPACE):
            if sizes[region]:
                self._reset.set_own(memory[region], POISON, sizes[region])
        self._reset.instantiate()

    def fill_weights(self, folder: Path) -> None:
        """Weights and constants; no step changes them."""
        copies = self._copies(WEIGHTS).instantiate()
        copies.launch()
        copies.close()
        for slot in self._recording.weights:
            if slot.role is Role.CONSTANT:
                data = np.fromfile(folder / "constant" / digest_of(slot.name), np.uint8)
                write(self._memory[WEIGHTS] + slot.offset, data)

    def reset(self, descriptor: Descriptor) -> None:
        """The cache as at first, poison elsewhere, and a descriptor's batch."""
        self._reset.launch()
        offsets = {slot.name: slot.offset for slot in self._recording.io}
        for name, array in samples.batch(self._recording, descriptor).items():
            write(self._memory[IO] + offsets[name], array)

    def _copies(self, region: int) -> Replay:
        replay = Replay(Functions({}))
        base, size = self._memory[region], self._sizes[region]
        for at in range(0, size, samples.BLOCK):
            replay.copy_own(base + at, self._sources[region], min(samples.BLOCK, size - at))
        return replay


def _difference(folder: Path, recording: Recording, descriptor: Any, bases: Sequence[int]) -> str:
    (slot,) = recording.of_role(Role.OUTPUT)
    expected = np.fromfile(folder / f"{descriptor.file}.out", np.uint8)
    found = read(bases[IO] + slot.offset, len(expected))
    if differing := int((found != expected).sum()):
        return f"{differing} of {len(expected)} bytes differ"
    digests = json.loads((folder / f"{descriptor.file}.kv").read_text("utf-8"))
    for (at, size), digest in zip(recording.compared_cache, digests, strict=True):
        if hashlib.sha256(read(bases[KV_CACHE] + at, size).tobytes()).hexdigest() != digest:
            return f"{size} bytes of the KV cache from byte {at} on are not the same"
    return ""


def digest_of(name: str) -> str:
    """The file name of a constant, whose own name may be no file name."""
    return hashlib.sha256(name.encode()).hexdigest()


def main(folder: str, ordinal: str = "0") -> None:
    """Check a folder and leave the result in it."""
    try:
        found = check(Path(folder), int(ordinal))
    except VccError as error:
        found = {"error": error.as_dict()}
    (Path(folder) / RESULT).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
