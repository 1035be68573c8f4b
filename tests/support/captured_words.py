"""Parameter blocks of three captures, and where their regions and mappings lay."""

from __future__ import annotations

import struct

from vcc.engine.graphs.recorder.addresses import FIRST, SECOND, Addresses
from vcc.engine.graphs.recorder.known import Known
from vcc.engine.graphs.recorder.mappings import Mapping
from vcc.engine.graphs.recorder.places import Move, Places
from vcc.engine.graphs.recorder.words import NONE, Captured

WEIGHTS = Move(0, 0x6123_4560_0000, 0x7456_7890_0000, 1 << 20)
SPACE = Move(1, 0x6200_0020_0000, 0x70F0_0060_0000, 1 << 16)
PLACES = Places((WEIGHTS, SPACE))
STACK = Mapping(0x7FFE_1000_0000, 0x7FFE_1080_0000, "rw-p [stack]")
DRIVER = (
    Mapping(0x2_0000_0000, 0x2_0060_0000, "rw-s /dev/nvidiactl"),
    Mapping(0x100_0000_0000, 0x104_0000_0000, "---p of no file"),
)
"""What CUDA has mapped in every process, at low addresses."""

SIZES = (1 << 30, 8 << 30, 1 << 30, 128 << 30)


def known_places(first: int, second: int) -> Places:
    """With what a capture knows, whose reservations begin at these addresses."""
    pools = (Addresses.at(first, FIRST, SIZES), Addresses.at(second, SECOND, SIZES))
    one, other = (Known(pool, (*DRIVER, STACK)) for pool in pools)
    return Places((WEIGHTS, SPACE), (one, other, one))


KNOWING = known_places(0x6000 << 32, 0x4000 << 32)


def block(*words: int) -> bytes:
    """A parameter block of eight-byte words."""
    return b"".join(struct.pack("<Q", word) for word in words)


def captured(*triples: tuple[int, int, int], live: frozenset[int] = NONE) -> Captured:
    """Words, each with its value in the three captures."""
    first, second, again = (block(*words) for words in zip(*triples, strict=True))
    return Captured(first, second, again, (live, live, live))
