"""CacheMemory: device memory of KV blocks, given back while nobody uses them and mapped again."""

from __future__ import annotations

import weakref
from typing import Protocol

from vcc.cache.errors import DeviceShortage
from vcc.engine.runtime.kv import Int32Array
from vcc.engine.runtime.player.handle import PlayerHandle

AHEAD = 64
"""Blocks that are mapped beyond those that are asked for, where there is memory: a call maps chunks
of every layer, and the next block comes soon."""


class User(Protocol):
    """Who holds blocks: a scheduler."""

    @property
    def reach(self) -> int:
        """Blocks from the first to the last that it holds."""


class CacheMemory:
    """The KV blocks of a player; all have addresses, those up to `mapped` have memory.

    Args:
        handle: the player that was placed first.
        blocks: how many there are; all have memory at first.
    """

    def __init__(self, handle: PlayerHandle, blocks: int) -> None:
        self._handle, self.blocks, self.mapped = handle, blocks, blocks
        self._users: weakref.WeakSet[User] = weakref.WeakSet()
        self._why = ""

    @property
    def trimmed(self) -> bool:
        """Whether some blocks have no memory."""
        return self.mapped < self.blocks

    def watch(self, user: User) -> None:
        """Take no memory of blocks that `user` holds, as long as it lives."""
        self._users.add(user)

    def hold(self, blocks: int) -> bool:
        """Give the first `blocks` blocks memory; False when the device has none for them now.

        Raises:
            GraphError: the cache sleeps.
            UsageError: a step is under way.
            DeviceError: the device is lost, or refuses for another reason than its free memory.
        """
        if blocks <= self.mapped:
            return True
        for wanted in sorted({blocks, min(blocks + AHEAD, self.blocks)}, reverse=True):
            try:
                self._map(wanted)
            except DeviceShortage as error:
                self._why = error.why
            else:
                return True
        return False

    def need(self, *blocks: Int32Array) -> None:
        """Give the blocks of these numbers memory, or raise `shortage`."""
        if self.trimmed and not self.hold(1 + max(int(some.max(initial=0)) for some in blocks)):
            raise self.shortage()

    def shortage(self) -> DeviceShortage:
        """Why `hold` failed last."""
        return DeviceShortage(
            "there is no memory for the KV cache",
            f"{self.mapped} of {self.blocks} blocks have memory; {self._why}",
            "free memory of the device and go on: nothing was lost",
        )

    def trim(self, keep: int = 0) -> int:
        """Give back the memory of blocks behind the last that is used; waits for the device.

        Args:
            keep: blocks from the first that keep their contents, besides those of users.

        Returns:
            Bytes, in whole chunks of each layer's keys and values.
        """
        # Padding points at block 0, so that one always has memory.
        used = max(1, min(keep, self.blocks), *(user.reach for user in self._users))
        if used >= self.mapped:
            return 0
        before = self._map(self.mapped)
        return before - self._map(used)

    def _map(self, blocks: int) -> int:
        """Bytes of the cache's memory afterwards."""
        size = self._handle.map_blocks(blocks)
        self.mapped = blocks
        return size
