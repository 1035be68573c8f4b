"""How many KV blocks a player gets: what the run needs, within the device's free memory."""

from __future__ import annotations

from dataclasses import dataclass

from vcc.cache.errors import DeviceError
from vcc.engine.runtime.player.handle import PlayerHandle, RegionBytes
from vcc.engine.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Blocks:
    """KV blocks with addresses, those of them with memory, and bytes of one."""

    reserved: int
    mapped: int
    block_bytes: int


SMALLER = "free memory of the device, or compile for smaller steps: --max-num-batched-tokens"


def check_room(needed: RegionBytes, free: int, hint: str = SMALLER) -> None:
    """Refuse a model whose weights and step do not fit, before anything is allocated.

    Args:
        needed: by the player, with its table.
        free: bytes of device memory.
        hint: what can be done.

    Raises:
        DeviceError: with the bytes.
    """
    if needed.without_cache > free:
        raise DeviceError(
            "the model does not fit on the device",
            f"weights need {needed.weights} bytes and a step "
            f"{needed.without_cache - needed.weights}, {free} are free",
            hint,
        )


def choose_blocks(handle: PlayerHandle, free: int, settings: Settings) -> Blocks:
    """Decide before the step's memory is allocated.

    Args:
        handle: the player, with its table and what the GEMM store offers.
        free: bytes of device memory that are free, those of its weights included.
        settings: what the run wants, and `kv_memory`.

    Raises:
        DeviceError: the weights, or one block beside them, do not fit; with the bytes.
    """
    one, two = handle.bytes(1), handle.bytes(2)
    check_room(one, free)
    block, spare = two.cache - one.cache, free - one.without_cache
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
