"""Reads what an ELF library asks of the loader, the way the loader does: from its segments.

Section headers say the same for people and are not what is loaded, so they are not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
SHARED_OBJECT, X86_64 = 3, 62
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
EXECUTABLE = 1
NULL, NEEDED, STRTAB, SYMTAB, RELA, RELASZ, STRSZ = 0, 1, 5, 6, 7, 8, 10
PLTRELSZ, JMPREL, VERSYM, VERNEED, VERNEEDNUM = 2, 23, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
REFUSED = {
    15: "RPATH", 17: "REL", 29: "RUNPATH", 0x6FFFFEFA: "CONFIG", 0x6FFFFEFB: "DEPAUDIT",
    0x6FFFFEFC: "AUDIT", 0x7FFFFFFD: "AUXILIARY", 0x7FFFFFFF: "FILTER",
}  # fmt: skip
"""Tags that send the loader to other files or folders, and relocations of another kind."""
MOST_HEADERS, MOST_TAGS, MOST_RELOCATIONS, MOST_VERSIONS = 256, 4096, 1 << 22, 4096
MOST_NAME = 4096


@dataclass(frozen=True, slots=True)
class Asked:
    """What a library asks of the loader.

    Attributes:
        needed: names of libraries, of those too that versions of symbols name.
        tags: dynamic tags that are refused, by name.
        symbols: undefined symbols that no version ties to a library.
    """

    needed: tuple[str, ...]
    tags: tuple[str, ...]
    symbols: tuple[str, ...]


def read_asked(data: bytes) -> Asked:
    """What the loader would be asked.

    Args:
        data: the bytes of a library.

    Raises:
        ValueError, struct.error, IndexError: it is no such library, or its headers contradict
            themselves.
    """
    image = _Image.of(data)
    versions = dict(image.versions())
    needed = [image.text(value) for tag, value in image.dynamic if tag == NEEDED]
    needed += [library for library, _ in versions.values()]
    tags = [REFUSED[tag] for tag, _ in image.dynamic if tag in REFUSED]
    return Asked(
        tuple(dict.fromkeys(needed)),
        (*tags, *(["an executable stack"] if image.runs_stack else [])),
        tuple(sorted(image.undefined(versions))),
    )


@dataclass(frozen=True, slots=True)
class _Image:
    """The bytes, where their segments lie in memory, and the dynamic table."""

    data: bytes
    segments: tuple[tuple[int, int, int], ...]
    dynamic: tuple[tuple[int, int], ...]
    runs_stack: bool

    @classmethod
    def of(cls, data: bytes) -> _Image:
        kind, machine = struct.unpack_from("<HH", data, 16)
        if data[:7] != MAGIC or (kind, machine) != (SHARED_OBJECT, X86_64):
            raise ValueError("it is no library for x86-64")
        at, size, count = struct.unpack_from("<Q14xHH", data, 32)
        if size != 56 or not 0 < count <= MOST_HEADERS:
            raise ValueError("its program headers are of another form")
        rows = [struct.unpack_from("<IIQQQQQQ", data, at + 56 * n) for n in range(count)]
        segments = tuple((row[3], row[2], row[5]) for row in rows if row[0] == LOAD)
        tables = [row for row in rows if row[0] == DYNAMIC]
        stacks = [row[1] for row in rows if row[0] == STACK]
        if len(tables) != 1:
            raise ValueError("it has not one dynamic table")
        dynamic = tuple(_dynamic(data, cls(data, segments, (), False).place(tables[0][3])))
        return cls(data, segments, dynamic, not stacks or any(f & EXECUTABLE for f in stacks))

    def place(self, address: int) -> int:
        """Where in the file lies what is loaded at an address."""
        for start, offset, size in self.segments:
            if start <= address < start + size:
                return offset + address - start
        raise ValueError(f"address {address:#x} is in no segment")

    def one(self, tag: int) -> int | None:
        """The value of a tag that stands at most once."""
        values = [value for name, value in self.dynamic if name == tag]
        if len(values) > 1:
            raise ValueError(f"dynamic tag {tag} stands {len(values)} times")
        return values[0] if values else None

    def text(self, offset: int) -> str:
        """A string of the dynamic string table."""
        table, size = self.one(STRTAB), self.one(STRSZ)
        if table is None or size is None or not 0 <= offset < size:
            raise ValueError("a name lies outside the string table")
        start = self.place(table) + offset
        end = self.data.index(b"\0", start, start + MOST_NAME)
        return self.data[start:end].decode("ascii")

    def versions(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """Version number of a symbol to (library, version)."""
        table, count = self.one(VERNEED), self.one(VERNEEDNUM) or 0
        if table is None:
            return
        at = self.place(table)
        for _ in range(_capped(count, MOST_VERSIONS)):
            _, inner, library, first, following = struct.unpack_from("<HHIII", self.data, at)
            row = at + first
            for _ in range(inner):
                _, _, number, name, step = struct.unpack_from("<IHHII", self.data, row)
                yield number & 0x7FFF, (self.text(library), self.text(name))
                row += step
            at += following

    def undefined(self, versions: Mapping[int, tuple[str, str]]) -> set[str]:
        """Names that relocations use, that the library lacks and that no version ties."""
        symbols, numbers = self.one(SYMTAB), self.one(VERSYM)
        found = set()
        for index in self._used():
            if symbols is None:
                raise ValueError("it has relocations and no symbols")
            name, section = struct.unpack_from("<I2xH", self.data, self.place(symbols + 24 * index))
            if section or not name:
                continue
            version = 0
            if numbers is not None:
                (version,) = struct.unpack_from("<H", self.data, self.place(numbers + 2 * index))
            if version & 0x7FFF not in versions:
                found.add(self.text(name))
        return found

    def _used(self) -> set[int]:
        """Numbers of the symbols that relocations name."""
        used = set()
        for table, size in ((RELA, RELASZ), (JMPREL, PLTRELSZ)):
            address, length = self.one(table), self.one(size) or 0
            if address is None:
                continue
            count = _capped(length // 24, MOST_RELOCATIONS)
            start = self.place(address)
            rows = self.data[start : start + 24 * count]
            if len(rows) != 24 * count:
                raise ValueError("its relocations end outside the file")
            used |= {info >> 32 for _, info, _ in struct.iter_unpack("<QQq", rows)}
        return used - {0}


def _dynamic(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    for index in range(MOST_TAGS):
        tag, value = struct.unpack_from("<QQ", data, at + 16 * index)
        if tag == NULL:
            return
        yield tag, value
    raise ValueError("its dynamic table does not end")


def _capped(count: int, most: int) -> int:
    if count > most:
        raise ValueError(f"{count} records, at most {most}")
    return count
