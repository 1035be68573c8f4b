"""What a cubin says of itself: architecture, functions, registers, memory. Data only, no driver.

A cubin is a 64-bit ELF file. Not documented by NVIDIA; read from files of ptxas 12.8 and 13.0, and
as the CUDA binary tools show them:

* `e_flags` holds the architecture: bits 0-7 up to ELF ABI version 7, bits 8-15 from version 8.
* `.text.<function>` is code; `.nv.shared.<function>` as large as its static shared memory.
* `.nv.info` lists attributes, `u8 form, u8 id, u16 size` and with form 4 `size` bytes behind:
  0x2f is (u32 symbol, u32 registers of a thread), 0x11 (u32 symbol, u32 bytes of its stack frame).
* `.nv.info.<function>` the same for one function; 0x19 has the parameter block's bytes as its size,
  0x05 is (u32 x, u32 y, u32 z), the most threads of a block, where the source says so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vcc.cache.errors import IntegrityError

CUDA_MACHINE = 190
REGISTERS, FRAME, PARAMETER_BYTES, MOST_THREADS = 0x2F, 0x11, 0x19, 0x05
SIZED = 4

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True, slots=True)
class CubinFunction:
    """A kernel in a cubin.

    Attributes:
        name: its symbol.
        registers: of a thread.
        shared: static shared memory of a block, bytes; dynamic memory is asked for at launch.
        stack: frame of a thread, bytes.
        param_bytes: size of its parameter block.
        code_bytes: size of its instructions.
        threads: most threads of a block; 0 where the source does not say.
    """

    name: str
    registers: int
    shared: int
    stack: int
    param_bytes: int
    code_bytes: int
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Cubin:
    """A cubin: the architecture it runs on (90 for sm_90) and its kernels by name."""

    arch: int
    functions: Mapping[str, CubinFunction]

    @property
    def target(self) -> str:
        """The architecture's name, `sm_90`."""
        return f"sm_{self.arch}"


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin.

    Raises:
        IntegrityError: it is none, or damaged.
    """
    try:
        return _read(data)
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        raise _refused(f"a part of it lies outside the file ({error})") from None


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    data: bytes
    size: int
    link: int


def _read(data: bytes) -> Cubin:
    ident, _, machine, *_, table, flags, _, _, _, width, count, names = _HEADER.unpack_from(data)
    if ident[:5] != b"\x7fELF\x02" or machine != CUDA_MACHINE:
        raise _refused("it is no 64-bit ELF file for NVIDIA GPUs")
    if width != _SECTION.size or names >= count:
        raise _refused("its section table is not valid")
    arch = (flags >> 8) & 0xFF if ident[8] >= 8 else flags & 0xFF
    sections = _sections(data, table, count, names)
    return Cubin(arch, {name: _function(name, sections) for name in _names(sections)})


def _sections(data: bytes, table: int, count: int, names: int) -> dict[str, _Section]:
    rows = [_SECTION.unpack_from(data, table + index * _SECTION.size) for index in range(count)]
    texts = data[rows[names][4] : rows[names][4] + rows[names][5]]
    found = {}
    for name, kind, _, _, offset, size, link, *_ in rows:
        stored = b"" if kind == 8 else data[offset : offset + size]
        if kind not in (0, 8) and len(stored) != size:
            raise _refused("a section lies outside the file")
        text = _text(texts, name)
        found[text] = _Section(text, stored, size, link)
    return found


def _names(sections: Mapping[str, _Section]) -> list[str]:
    prefix = ".text."
    return sorted(name.removeprefix(prefix) for name in sections if name.startswith(prefix))


def _function(name: str, sections: Mapping[str, _Section]) -> CubinFunction:
    info = sections.get(f".nv.info.{name}")
    shared = sections.get(f".nv.shared.{name}")
    return CubinFunction(
        name=name,
        registers=_of_symbol(REGISTERS, name, sections),
        shared=0 if shared is None else shared.size,
        stack=_of_symbol(FRAME, name, sections),
        param_bytes=0 if info is None else _param_bytes(info.data),
        code_bytes=sections[f".text.{name}"].size,
        threads=0 if info is None else _threads(info.data),
    )


def _param_bytes(info: bytes) -> int:
    return next((value for id, value, _ in _attributes(info) if id == PARAMETER_BYTES), 0)


def _threads(info: bytes) -> int:
    found = (more for id, _, more in _attributes(info) if id == MOST_THREADS and len(more) == 12)
    x, y, z = struct.unpack("<III", next(found, bytes(12)))
    return int(x * y * z)


def _of_symbol(wanted: int, name: str, sections: Mapping[str, _Section]) -> int:
    """An attribute of `.nv.info` that names a function by its symbol; 0 without one."""
    for id, _, value in _attributes(sections[".nv.info"].data if ".nv.info" in sections else b""):
        if id == wanted and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            if _symbol(symbol, sections) == name:
                return int(number)
    return 0


def _symbol(index: int, sections: Mapping[str, _Section]) -> str:
    name, *_ = _SYMBOL.unpack_from(sections[".symtab"].data, index * _SYMBOL.size)
    return _text(sections[".strtab"].data, name)


def _attributes(info: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        form, id, value = struct.unpack_from("<BBH", info, at)
        at += 4
        more = info[at : at + value] if form == SIZED else b""
        at += len(more)
        yield id, value, more


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _refused(why: str) -> IntegrityError:
    return IntegrityError("a cubin cannot be read", why, "rebuild the artifact: vcc compile")
