"""A factory's module from its recorded graph: torch holds tensors on the host, the player computes.

The weights are the factory's own or a file's, so torch is in this process anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from vcc.cache.errors import IntegrityError, ModelError, UsageError
from vcc.engine.arena import Arena
from vcc.engine.graphs.blob_names import CONSTANT, CUBIN
from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.native import memory_at
from vcc.engine.runtime.forward import Forward
from vcc.engine.runtime.module_loader import state_of
from vcc.engine.runtime.player.handle import Inputs, PlayerHandle, Read
from vcc.engine.runtime.player.layout import Layout, Tensor
from vcc.engine.runtime.player.opening import open_context, read_parts
from vcc.engine.runtime.player.recorded import PREFIX, RING, SLOTS, THREADS, Recorded
from vcc.engine.runtime.player.values import Bytes
from vcc.engine.runtime.settings import Boot
from vcc.engine.runtime.turn import Turn
from vcc.engine.tensor_bytes import tensor_bytes


def load_module_recorded(boot: Boot) -> Forward:
    """The module's forward on the GPU.

    Raises:
        Damaged, IntegrityError: a blob or the table is not what was published.
        DeviceError: no device, another one, or too little memory.
        ModelError: the weights are not those of the module.
    """
    device = open_context(boot)
    with boot.ledger.phase("verify"):
        tables = [name for name in boot.loaded.manifest.blobs if name.startswith(PREFIX)]
        blobs = read_parts(boot, tables)
        if len(tables) != 1:
            raise IntegrityError("a recorded module has one node table", f"here are {len(tables)}")
    with boot.ledger.phase("modules"):
        arena = Arena(device.ordinal)
        handle = PlayerHandle(arena.handle, blobs[tables[0]])
        for name, data in blobs.items():
            if name.startswith(CUBIN):
                handle.add_cubin(name.removeprefix(CUBIN), data)
        handle.place(1, 1, SLOTS, RING)
        layout = Layout.read(handle.describe())
    with boot.ledger.phase("weights"):
        _fill(boot, handle, layout, blobs)
    recorded = Recorded.parse(tables[0])
    with boot.ledger.phase("graphs"):
        handle.build([recorded.shape], 1, THREADS)
        boot.counters.add("restores")
    return RecordedForward(handle, layout, recorded, arena)


class RecordedForward:
    """Runs the recorded graph on tensors of the host; keeps its memory for as long as it lives."""

    def __init__(
        self, handle: PlayerHandle, layout: Layout, recorded: Recorded, arena: Arena
    ) -> None:
        self._handle, self._layout, self._recorded, self._arena = handle, layout, recorded, arena
        self._inputs = [one for one in layout.tensors.values() if one.role == "input"]
        self._outputs = [one for one in layout.tensors.values() if one.role == "output"]
        self._turn = Turn()

    def __call__(
        self, inputs: Mapping[str, torch.Tensor], *, copy: bool = False
    ) -> dict[str, torch.Tensor]:
        """Run once.

        Args:
            inputs: a dense CPU tensor for each declared input, by name.
            copy: nothing is different without: what the device computed is read into new memory.

        Returns:
            Outputs by name, fresh tensors on the CPU.

        Raises:
            UsageError: an input is missing, unknown, or has another dtype or shape than recorded.
        """
        with self._turn.taken():
            if set(inputs) != {one.name for one in self._inputs}:
                wanted = ", ".join(one.name for one in self._inputs)
                raise UsageError("the inputs are not those of the module", f"it takes {wanted}")
            slot = self._handle.slot()
            for one in self._inputs:
                room = memory_at(self._layout.slots[slot] + one.slot, one.bytes)
                np.frombuffer(room, np.uint8)[:] = _bytes(one, inputs[one.name])
            self._handle.step(self._recorded.shape, 1, slot, Inputs.ALL, Read.NOTHING)
            return {f"output_{index}": self._read(one) for index, one in enumerate(self._outputs)}

    def _read(self, one: Tensor) -> torch.Tensor:
        data = self._handle.read(one.address, one.bytes)
        return torch.from_numpy(data).view(DTYPES[one.dtype]).view(one.shape)


def _bytes(one: Tensor, tensor: torch.Tensor) -> Bytes:
    dtype = DTYPES[one.dtype]
    if tensor.dtype != dtype or tuple(tensor.shape) != one.shape or tensor.device.type != "cpu":
        raise UsageError(
            f"input {one.name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}",
            f"the graph was recorded for {one.dtype} {list(one.shape)} from the CPU",
        )
    return tensor_bytes(tensor)


def _fill(boot: Boot, handle: PlayerHandle, layout: Layout, blobs: Mapping[str, bytes]) -> None:
    state = state_of(boot)
    for one in layout.tensors.values():
        if one.role == "constant":
            data = blobs.get(CONSTANT + one.target, b"")
            if len(data) != one.bytes:
                raise IntegrityError(
                    f"constant {one.target[:60]} is {len(data)} bytes",
                    f"the table takes {one.bytes} bytes",
                )
            handle.write(one.address, np.frombuffer(data, np.uint8))
        elif one.role == "weight":
            if one.target not in state:
                raise ModelError(
                    f"the module has no parameter {one.target}", "its code has changed"
                )
            handle.write(one.address, _bytes(one, state[one.target]))
