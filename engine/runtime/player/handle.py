"""PlayerHandle: the C ABI of csrc/player as one object; addresses and numbers in, numbers out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from vcc.engine.native import functions
from vcc.engine.runtime.kv import Int32Array
from vcc.engine.runtime.player.gemm_calls import GemmCalls, rows_of
from vcc.engine.runtime.player.values import ValueCalls

C = functions(
    {
        "vcc_player_create": "ptr bytes u64 -> ptr",
        "vcc_player_create_beside": "ptr bytes u64 -> ptr",
        "vcc_player_create_apart": "ptr bytes u64 -> ptr",
        "vcc_player_close": "ptr",
        "vcc_player_add_cubin": "ptr str bytes u64",
        "vcc_player_place_weights": "ptr -> str",
        "vcc_player_bytes": "ptr i64 -> u64 u64 u64 u64 u64",
        "vcc_player_place": "ptr i64 i64 u32 u32",
        "vcc_player_map_blocks": "ptr i64 -> u64",
        "vcc_player_describe": "ptr -> str",
        "vcc_player_build": "ptr buffer u64 u32 u32",
        "vcc_player_graphs": "ptr u32 -> u32 u32 u32 u32 str",
        "vcc_player_slot": "ptr -> u32",
        "vcc_player_step": "ptr u32 i64 i64 u32 u32 u32 u32 u32 -> ptr",
        "vcc_player_decode": (
            "ptr u32 i64 u32 u32 u32 u32 u32 buffer u32 buffer buffer u32 u32 buffer buffer -> u32"
        ),
        "vcc_player_wait": "ptr",
        "vcc_player_read": "ptr u64 buffer u64",
        "vcc_player_write": "ptr u64 buffer u64",
        "vcc_player_gemms": "ptr i64 i64 -> str",
        "vcc_player_stats": "ptr -> str",
    }
)


class Mode(IntEnum):
    """How a step is launched."""

    PLAIN = 0
    FULL = 1
    PIECEWISE = 2


class Parts(IntFlag):
    """What belongs to a step: one token a sequence, sampling tail, advancing head, adapters."""

    NONE = 0
    UNIFORM = 1
    SAMPLE = 2
    ADVANCE = 4
    ADAPTED = 8


class Inputs(IntFlag):
    """Groups of inputs that are sent to the device."""

    NONE = 0
    STEP = 1
    SAMPLING = 2
    TOKEN = 4
    ALL = 7  # a forward may call an input as a decoder calls those of its sampling


class Read(IntFlag):
    """What comes back to the host."""

    NOTHING = 0
    LOGITS = 1
    TOKENS = 2


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """A step as the player sees it: rows and sequences with padding, mode and parts."""

    mode: Mode
    tokens: int
    seqs: int
    parts: Parts

    def row(self) -> tuple[int, ...]:
        """As `vcc_player_build` takes it."""
        every = (Parts.UNIFORM, Parts.SAMPLE, Parts.ADVANCE, Parts.ADAPTED)
        return (int(self.mode), self.tokens, self.seqs, *(int(p in self.parts) for p in every))


@dataclass(frozen=True, slots=True)
class RegionBytes:
    """Bytes of each kind of region."""

    weights: int
    cache: int
    io: int
    workspace: int
    scratch: int

    @property
    def without_cache(self) -> int:
        """All but the KV cache."""
        return self.weights + self.io + self.workspace + self.scratch


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """Descriptors wanted, ready and failed, executable graphs, and why the first one failed."""

    wanted: int
    ready: int
    failed: int
    graphs: int
    failure: str


class PlayerHandle(GemmCalls, ValueCalls):
    """A player of the native library; errors are those of csrc/player.

    Args:
        arena: handle of the arena that its memory comes from.
        table: bytes of a node table.
    """

    def __init__(self, arena: int, table: bytes) -> None:
        self._handle = C.vcc_player_create(arena, table, len(table))

    def beside(self, table: bytes) -> PlayerHandle:
        """A player of another table over this one's memory and modules.

        For tables of other sizes of the same step. This one is placed first, and then that one with
        the same numbers.
        """
        made = object.__new__(PlayerHandle)
        made._handle = C.vcc_player_create_beside(self._handle, table, len(table))
        return made

    def apart(self, table: bytes) -> PlayerHandle:
        """A player of another table with memory of its own and this one's modules."""
        made = object.__new__(PlayerHandle)
        made._handle = C.vcc_player_create_apart(self._handle, table, len(table))
        return made

    def close(self) -> None:
        """Give memory, graphs and modules back; nothing else may be called afterwards."""
        handle, self._handle = self._handle, 0
        if handle:
            C.vcc_player_close(handle)

    def add_cubin(self, digest: str, data: bytes) -> None:
        """Load a cubin under its SHA-256; its bytes are verified."""
        C.vcc_player_add_cubin(self._handle, digest, data, len(data))

    def place_weights(self) -> Mapping[str, Any]:
        """Give the weights memory before the rest has its own: `address`, `bytes`, `tensors`."""
        found: Mapping[str, Any] = json.loads(C.vcc_player_place_weights(self._handle))
        return found

    def bytes(self, blocks: int) -> RegionBytes:
        """Memory that the regions take with so many KV blocks."""
        return RegionBytes(*C.vcc_player_bytes(self._handle, blocks))

    def place(self, blocks: int, mapped: int, slots: int, ring: int) -> None:
        """Give every region its memory; see csrc/player/abi.h."""
        C.vcc_player_place(self._handle, blocks, mapped, slots, ring)

    def map_blocks(self, mapped: int) -> int:
        """Memory for the first `mapped` KV blocks and none for others; bytes of the cache now."""
        return int(C.vcc_player_map_blocks(self._handle, mapped))

    def describe(self) -> Mapping[str, Any]:
        """Tensors, regions, input slots, token ring."""
        found: Mapping[str, Any] = json.loads(C.vcc_player_describe(self._handle))
        return found

    def build(self, shapes: Sequence[Shape], hot: int, threads: int) -> None:
        """Build graphs, the first `hot` before this returns."""
        C.vcc_player_build(self._handle, rows_of(shapes), len(shapes), hot, threads)

    def graphs(self, *, wait: bool = False) -> GraphCounts:
        """How far the graphs are; `wait` until all are built."""
        return GraphCounts(*C.vcc_player_graphs(self._handle, int(wait)))

    def slot(self) -> int:
        """The next input slot, once nothing reads it any more."""
        return int(C.vcc_player_slot(self._handle))

    def step(self, shape: Shape, rows: int, slot: int, inputs: Inputs, read: Read) -> int:
        """Run one step and wait for it; the address of the logits, if they were read."""
        return int(
            C.vcc_player_step(
                *(self._handle, shape.mode, shape.tokens, shape.seqs),
                *(shape.parts, rows, slot, inputs, read),
            )
        )

    def decode(self, shape: Shape, call: DecodeCall) -> int:
        """Decode steps by the device alone; how many were done."""
        parts = shape.parts & (Parts.UNIFORM | Parts.ADAPTED)
        return int(
            C.vcc_player_decode(
                *(self._handle, shape.mode, shape.tokens, parts, call.rows, call.steps),
                *(int(call.changed is None), call.slot),
                *(call.changed, 0 if call.changed is None else len(call.changed)),
                *(call.stops, call.stop_start, call.finish, call.ahead),
                *(call.control, call.gaps),
            )
        )

    def wait(self) -> None:
        """Until everything queued is done."""
        C.vcc_player_wait(self._handle)

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Copy device memory to the host."""
        data = np.empty(size, np.uint8)
        C.vcc_player_read(self._handle, address, data, size)
        return data

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy an array to device memory."""
        flat = np.ascontiguousarray(data)
        C.vcc_player_write(self._handle, address, flat, flat.nbytes)

    def gemms(self, tokens: int, seqs: int) -> list[Mapping[str, Any]]:
        """Who computes each matrix product of a step."""
        found: list[Mapping[str, Any]] = json.loads(C.vcc_player_gemms(self._handle, tokens, seqs))
        return found

    def stats(self) -> Mapping[str, Any]:
        """Nanoseconds by stage, and counts; `full_edges_why` where the driver weakened edges."""
        found: Mapping[str, Any] = json.loads(C.vcc_player_stats(self._handle))
        return found


@dataclass(frozen=True, slots=True)
class DecodeCall:
    """A run of the decode loop.

    Attributes:
        rows: sequences without padding.
        steps: most steps.
        slot: input slot with the state before the first advance.
        changed: rows of the block table that differ from the run before, whose state goes on;
            None to send everything.
        stops: token ids that end sequences, sequence after sequence.
        stop_start: [rows + 1] where each sequence's begin.
        finish: end the run when so many sequences have ended.
        ahead: steps launched before the last one's tokens are seen.
        control: int64 [2]: set the first to end the run soon; the second counts visible steps.
        gaps: int64 [steps]: nanoseconds from a step's tokens seen to the next launch returned.
    """

    rows: int
    steps: int
    slot: int
    changed: Int32Array | None
    stops: Int32Array
    stop_start: Int32Array
    finish: int
    ahead: int
    control: npt.NDArray[np.int64]
    gaps: npt.NDArray[np.int64]
