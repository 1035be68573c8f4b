"""The training text: Jane Austen's six novels, read from Debian's `r-cran-janeaustenr`.

The package keeps each novel as one serialised R character vector in `Rdata.rdb`:

    rdb    = chunk*
    chunk  = u32 length, zlib(xdr)                   big endian; length of xdr in bytes
    xdr    = "X\\n", u32 version = 3, u32, u32, u32 n, byte[n] encoding, vector
    vector = u32 flags (low byte 16), u32 count, string{count}
    string = u32 flags (low byte 9), u32 size, byte[size]      UTF-8

(R Internals, section 1.8, "Serialization Formats".)
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import UsageError

INSTALLED = Path("/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
PERIOD = 20  # of every 20 chapters one is for validation and one is held out
VALIDATION, HELD_OUT = 6, 13
VECTOR, STRING = 16, 9

CHAPTER = re.compile(r"(CHAPTER|Chapter|VOLUME) [IVXL\d]+\b|FINIS|Finis|THE END|END OF|A NOTE ON")
QUOTES = {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"}
PLAIN = str.maketrans({**QUOTES, "\u2014": "--", "\u00e9": "e", "_": ""})


@dataclass(frozen=True, slots=True)
class Split:
    """Chapters as plain text (paragraphs of one line each), by their use."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    held_out: tuple[str, ...]


def read_split(path: Path) -> Split:
    """Read the novels at `path` (`Rdata.rdb`) and deal their chapters into three sets.

    The deal depends on the chapter's number only, so every novel has chapters in each set and no
    set shares a paragraph with another.
    """
    chapters = tuple(text for novel in novels(path) for text in chapters_of(novel))
    dealt = tuple((number % PERIOD, text) for number, text in enumerate(chapters))
    return Split(
        train=tuple(text for rest, text in dealt if rest not in (VALIDATION, HELD_OUT)),
        validation=tuple(text for rest, text in dealt if rest == VALIDATION),
        held_out=tuple(text for rest, text in dealt if rest == HELD_OUT),
    )


def novels(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield each novel as its printed lines; raises `UsageError` for a file of another form."""
    try:
        data = path.read_bytes()
        while data:
            inflate = zlib.decompressobj()
            yield _strings(inflate.decompress(data[4:]))
            data = inflate.unused_data
    except (OSError, ValueError, struct.error, zlib.error) as error:
        raise UsageError(
            what=f"cannot read the training text {path}",
            why=str(error),
            hint="install r-cran-janeaustenr 1.0.0 (Debian), or unpack it with dpkg -x",
        ) from error


def _strings(xdr: bytes) -> tuple[str, ...]:
    (encoding,) = struct.unpack_from(">I", xdr, 14)
    at = 18 + encoding
    flags, count = struct.unpack_from(">II", xdr, at)
    if xdr[:2] != b"X\n" or flags & 255 != VECTOR:
        raise ValueError("not a serialised R character vector")
    strings, at = [], at + 8
    for _ in range(count):
        flags, size = struct.unpack_from(">II", xdr, at)
        if flags & 255 != STRING:
            raise ValueError(f"no string at byte {at}")
        strings.append(xdr[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return tuple(strings)


def chapters_of(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield the chapters of a novel; the title pages before the first heading are left out."""
    starts = [i for i, line in enumerate(lines) if CHAPTER.match(line.strip())]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = _paragraphs(lines[start + 1 : end])
        if len(text) > 1000:  # shorter ones are volume titles and closing lines
            yield text


def _paragraphs(lines: tuple[str, ...]) -> str:
    """Undo the line wrapping: one line a paragraph, plain ASCII quotes, no italics marks."""
    text = "\n".join(line.strip() for line in lines).translate(PLAIN)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return "\n".join(block for block in blocks if block.strip("* "))
