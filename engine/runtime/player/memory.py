"""How many KV blocks a player gets: what the run needs, within the device's free memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vcc.cache.errors import DeviceError
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Blocks:
    """KV blocks with addresses, those of them with memory, and bytes of one."""

    reserved: int
    mapped: int
    block_bytes: int


def choose_blocks(handle: PlayerHandle, available: Callable[[], int], settings: Settings) -> Blocks:
    """Decide before anything is allocated.

    Args:
        handle: the player, with its table and GEMM entries.
        available: bytes of device memory that are free.
        settings: what the run wants, and `kv_memory`.

    Raises:
        DeviceError: the weights, or one block beside them, do not fit; with the bytes.
    """
    one, two = handle.bytes(1), handle.bytes(2)
    block, free = two.cache - one.cache, available()
    spare = free - one.without_cache
    if spare < 0:
        raise DeviceError(
            "the model does not fit on the device",
            f"weights need {one.weights} bytes and a step {one.without_cache - one.weights}, "
            f"{free} are free",
            "free memory of the device, or compile for smaller steps: --max-num-batched-tokens",
        )
    wanted = settings.wanted_blocks
    if not block:
        return Blocks(wanted, wanted, 0)
    affordable = settings.kv_memory.of(spare) // block
    if affordable < 1:
        raise DeviceError(
            "there is no memory for the KV cache",
            f"a block takes {block} bytes; {spare} are free beside the weights",
            "free memory of the device, or give it more: --kv-memory",
        )
    return Blocks(wanted, min(wanted, affordable), block)
