"""Files of caches as blobs: each blob holds those whose paths have one first byte of SHA-256.

    name  = "files/" 2 hex digits
    blob  = index LF content*           ; contents in the order of the index
    index = canonical JSON: {"files": [[path, bytes], ...], "format": 1}      ; sorted by path

So a few hundred blobs hold any number of files, and a kernel that is added changes one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.digest import Digest
from vcc.engine.guest.files import MAX_FILE, File, is_path, is_whole
from vcc.engine.guest.relocate import from_stored, is_group, to_stored

FORMAT = 1
PREFIX = "files/"


def blob_of(path: str) -> str:
    """The name of the blob that holds a file."""
    return PREFIX + Digest.of(path.encode()).hex[:2]


def packed(folder: Path, files: Mapping[str, File]) -> tuple[dict[str, bytes], list[str]]:
    """Blobs of files, and those that were left out: gone, unfinished, or naming other places.

    Args:
        folder: of the caches.
        files: by path.
    """
    by_blob: dict[str, list[str]] = {}
    for path in sorted(files):
        by_blob.setdefault(blob_of(path), []).append(path)
    blobs, left_out = {}, []
    for name, paths in by_blob.items():
        contents = {path: _content(folder, path) for path in paths}
        left_out += [path for path, data in contents.items() if data is None]
        kept = {path: data for path, data in contents.items() if data is not None}
        if kept:
            blobs[name] = _blob(kept)
    return blobs, left_out


def unpacked(name: str, data: bytes, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each file of a blob, to be put below `folder`.

    Args:
        name: of the blob.
        data: its verified bytes. Who made them may still have been wrong.
        folder: of the caches.

    Raises:
        FormatError: this is no such blob, or a file of it would lie elsewhere.
    """
    index, _, content = data.partition(b"\n")
    view, at = memoryview(content), 0
    for path, size in _files(name, canonical.decode(index, "index of a bundle"), len(content)):
        part = bytes(view[at : at + size])
        at += size
        yield path, from_stored(part, (folder / path).parent) if is_group(path) else part


def _content(folder: Path, path: str) -> bytes | None:
    try:
        with (folder / path).open("rb") as stream:
            data = stream.read(MAX_FILE + 1)
    except OSError:
        return None
    if len(data) > MAX_FILE or not is_whole(path, data):
        return None
    return to_stored(data, (folder / path).parent) if is_group(path) else data


def _blob(contents: Mapping[str, bytes]) -> bytes:
    files = [[path, len(data)] for path, data in contents.items()]
    index = canonical.encode({"files": files, "format": FORMAT}, "index of a bundle")
    return b"".join((index, b"\n", *contents.values()))


def _files(name: str, index: object, room: int) -> list[tuple[str, int]]:
    if not isinstance(index, dict) or set(index) != {"files", "format"}:
        raise FormatError(f"blob {name[:80]} is no bundle of files")
    if index["format"] != FORMAT or not isinstance(index["files"], list):
        raise FormatError(f"blob {name[:80]} is a bundle of another format")
    found = [_row(name, row) for row in index["files"]]
    paths = [path for path, _ in found]
    if sum(size for _, size in found) != room or paths != sorted(set(paths)):
        raise FormatError(f"blob {name[:80]} does not hold what its index says")
    return found


def _row(name: str, row: object) -> tuple[str, int]:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str):
        raise FormatError(f"blob {name[:80]} has a malformed index")
    path, size = row
    if type(size) is not int or size < 0 or not is_path(path) or blob_of(path) != name:
        raise FormatError(f"blob {name[:80]} has a file that belongs elsewhere", path[:200])
    return path, size
