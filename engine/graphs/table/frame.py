"""Cut a node table's bytes into sections of records, trusting nothing in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.table.layout import (
    ALIGNMENT,
    ENTRY,
    HEADER,
    MAGIC,
    MOST_BYTES,
    SHAPES,
    VERSION,
    Section,
)

RAW_BYTES = (Section.STRINGS, Section.BYTES)


@dataclass(frozen=True, slots=True)
class Frame:
    """The records of every section as tuples of their fields; two sections are plain bytes."""

    records: Mapping[Section, Sequence[tuple[Any, ...]]]
    strings: bytes
    data: bytes

    def count(self, section: Section) -> int:
        """How many records a section of records has."""
        return len(self.records[section])


def refuse(section: Section | None, index: int | None, why: str) -> NoReturn:
    """Refuse the table, naming the section and record where it is wrong.

    Raises:
        IntegrityError: always.
    """
    place = "header" if section is None else section.name.lower()
    record = "" if index is None else f"[{index}]"
    raise IntegrityError(
        "node table refused", f"{place}{record}: {why}", "build or record the graph again"
    )


def read_frame(data: bytes | memoryview) -> Frame:
    """Check the header and the places of all sections, and split them into records.

    Raises:
        IntegrityError: not a table of this version, or sections that do not follow one another.
    """
    view = memoryview(data).cast("B")
    _check_header(view)
    spans = _spans(view)
    records = {
        section: list(SHAPES[section].record.iter_unpack(span))
        for section, span in spans.items()
        if section not in RAW_BYTES
    }
    return Frame(records, bytes(spans[Section.STRINGS]), bytes(spans[Section.BYTES]))


def _check_header(view: memoryview) -> None:
    least = HEADER.size + ENTRY.size * len(Section)
    if not least <= len(view) <= MOST_BYTES:
        refuse(None, None, f"{len(view)} bytes, not {least} to {MOST_BYTES}")
    magic, version, flags, size, sections, *reserved = HEADER.unpack_from(view)
    if magic != MAGIC:
        refuse(None, None, "not a node table")
    if version != VERSION:
        refuse(None, None, f"version {version}, not {VERSION}")
    if flags or any(reserved):
        refuse(None, None, "a field that must be zero is not")
    if size != len(view):
        refuse(None, None, f"says {size} bytes, has {len(view)}")
    if sections != len(Section):
        refuse(None, None, f"{sections} sections, not {len(Section)}")


def _spans(view: memoryview) -> dict[Section, memoryview]:
    spans, end = {}, HEADER.size + ENTRY.size * len(Section)
    for section in Section:
        start, stop = _place(view, section)
        padded = end + -end % ALIGNMENT
        if start != padded:
            refuse(section, None, f"starts at byte {start}, not {padded}")
        if stop > len(view):
            refuse(section, None, f"ends at byte {stop} of {len(view)}")
        if any(view[end:start]):
            refuse(section, None, "bytes before it are not zero")
        spans[section], end = view[start:stop], stop
    if end != len(view):
        refuse(Section.BYTES, None, f"{len(view) - end} bytes follow it")
    return spans


def _place(view: memoryview, section: Section) -> tuple[int, int]:
    kind, size, offset, count = ENTRY.unpack_from(view, HEADER.size + ENTRY.size * section)
    shape = SHAPES[section]
    if kind != section:
        refuse(section, None, f"has kind {kind}")
    if size != shape.record.size:
        refuse(section, None, f"records of {size} bytes, not {shape.record.size}")
    if count > shape.most:
        refuse(section, None, f"{count} records, at most {shape.most}")
    return offset, offset + count * size
