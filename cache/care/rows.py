"""Rows: what the refs of a store say, read quickly.

Ten thousand refs are read in a quarter of a second: their sums are compared, their deeper rules are
not. So nothing that loads an artifact may rely on a row.
"""

from __future__ import annotations

import os
import re
import stat
from hashlib import sha256

import msgspec

from vcc.cache.canonical import MAX_INT
from vcc.cache.digest import is_digest
from vcc.cache.folder import FILE_FLAGS, FOLDER_FLAGS, Folder
from vcc.cache.refs import MAX_REF
from vcc.cache.safety import check_folder

LABELS = (
    *("model.dtype", "config.mode", "config.backend", "config.cuda_graph_mode"),
    *("target", "model.digest"),
    *("model.kv_cache_dtype", "model.enable_lora", "model.max_loras"),
)
_SUM = 66
# In JSON a quotation mark inside text has a backslash before it, so `["` begins a pair and nothing
# else; a value that has a backslash is left to `Item.fields`.
_SHOWN = re.compile(r'\["(' + "|".join(map(re.escape, LABELS)) + r')","([^"\\]*)"\]')


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One ref.

    Args:
        artifact: its id, hex.
        title: what it is, for people.
        created: seconds since 1970 by the builder's clock.
        size: bytes of all its blobs.
        build_ms: milliseconds that its build took; 0 where that is not known.
        written: when the ref was written, seconds since 1970 by the store's clock.
        shown: some labels of its request, as they were settled: `LABELS`.
        request, host_rules: JSON text of pairs.
    """

    artifact: str
    title: str
    created: int
    size: int
    build_ms: int
    written: float
    shown: dict[str, str]
    request: str
    host_rules: str


class Base(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The refs of one base.

    Args:
        base: its digest, hex.
        changed: when its folder changed, nanoseconds since 1970.
        bad: how many refs are damaged.
        rows: the others.
    """

    base: str
    changed: int
    bad: int
    rows: tuple[Row, ...]


class _Record(msgspec.Struct, frozen=True, gc=False):
    artifact: str
    created: int
    size: int
    title: str
    request: msgspec.Raw
    host_rules: msgspec.Raw
    build_ms: int = 0
    settled: msgspec.Raw = msgspec.Raw(b"[]")


_RECORD = msgspec.json.Decoder(_Record)


def read_base(refs: Folder, base: str) -> Base | None:
    """The refs of one base; None where there is no such folder.

    Args:
        refs: the open folder of all refs.
        base: a digest, hex.

    Raises:
        OSError, Unsafe: it cannot be listed.
    """
    # `Folder.below` takes twice as long, and there may be a folder for each of 10,000 models.
    try:
        fd = os.open(base, FOLDER_FLAGS, dir_fd=refs.fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = os.fstat(fd)
        check_folder(found, f"{refs.path}/{base}", refs.shared)
        read = [_row(fd, name) for name in os.listdir(fd) if is_digest(name)]
    finally:
        os.close(fd)
    rows = tuple(row for row in read if isinstance(row, Row))
    return Base(base, found.st_mtime_ns, read.count(False), rows)


def _row(folder: int, name: str) -> Row | bool:
    """One ref; False for a damaged one, True where it was removed under us."""
    try:
        fd = os.open(name, FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_REF:
            return False
        record = _decoded(name, os.read(fd, found.st_size))
    finally:
        os.close(fd)
    if record is None:
        return False
    request = bytes(record.request).decode()
    settled = bytes(record.settled).decode()
    return Row(
        name,
        record.title,
        record.created,
        record.size,
        record.build_ms,
        max(0.0, found.st_mtime),
        dict(_SHOWN.findall(request) + _SHOWN.findall(settled)),
        request,
        bytes(record.host_rules).decode(),
    )


def _decoded(name: str, data: bytes) -> _Record | None:
    """The record of a ref whose sum and name agree; None otherwise."""
    text, end = data[:-_SUM], data[-_SUM:]
    if end != b"\n%s\n" % sha256(text).hexdigest().encode():
        return None
    try:
        record = _RECORD.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    bounded = 0 <= record.size <= MAX_INT and 0 <= record.created <= MAX_INT
    good = bounded and 0 <= record.build_ms <= MAX_INT and record.artifact == name
    return record if good and record.title.isprintable() else None
