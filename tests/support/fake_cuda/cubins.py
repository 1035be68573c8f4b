"""Cubins without code for the double: an ELF with the sections from which kernels are read."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

NOTHING, PROGBITS, STRTAB, INFO = 0, 1, 3, 0x70000000


def cubin(
    kernels: Mapping[str, Sequence[int]], *, arch: int = 90, block: int = 0, shared: int = 0
) -> bytes:
    """A cubin that the double loads.

    Args:
        kernels: name to the sizes of its parameters in bytes; each is aligned to its size, to 8 at
            most.
        arch: 90 for sm_90.
        block: the only number of threads a block may have; 0 for any.
        shared: static shared memory of each kernel.
    """
    sections: list[tuple[str, int, bytes]] = [("", NOTHING, b"")]
    for name, sizes in kernels.items():
        sections.append((f".text.{name}", PROGBITS, b"\0" * 16))
        sections.append((f".nv.info.{name}", INFO, _info(sizes, block)))
        if shared:
            sections.append((f".nv.shared.{name}", PROGBITS, b"\0" * shared))
    sections.append((".shstrtab", STRTAB, b""))
    return _elf(sections, arch)


def _info(sizes: Sequence[int], block: int) -> bytes:
    data, end = b"", 0
    for index, size in enumerate(sizes):
        alignment = min(size, 8)
        offset = -(-end // alignment) * alignment
        end = offset + size
        data += struct.pack("<BBHIHHI", 4, 0x17, 12, 0, index, offset, size << 18 | 0x1F000)
    data += struct.pack("<BBH", 3, 0x19, end)
    if block:
        data += struct.pack("<BBHIII", 4, 0x10, 12, block, 1, 1)
    return data


def _elf(sections: list[tuple[str, int, bytes]], arch: int) -> bytes:
    names, offsets = b"", []
    for name, _, _ in sections:
        offsets.append(len(names))
        names += name.encode() + b"\0"
    body, headers = b"", b""
    for (name, kind, data), name_at in zip(sections, offsets, strict=True):
        content = names if name == ".shstrtab" else data
        body += b"\0" * (-len(body) % 16)
        place = (64 + len(body), len(content))
        headers += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, *place, 0, 0, 16, 0)
        body += content
    body += b"\0" * (-len(body) % 16)
    head = b"\x7fELF\2\1\1\x33\x07".ljust(16, b"\0")
    counts = (64, 0, 0, 64, len(sections), len(sections) - 1)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), arch, *counts)
    return head + body + headers
