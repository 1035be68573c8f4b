"""Triton's group files name their members by absolute paths: in the store these are relative.

stored = {"child_paths": {name: "<member's file name>"}}      canonical JSON
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vcc.cache import canonical
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.errors import IntegrityError
from vcc.engine.guest.files import TRITON, is_name

GROUP = "__grp__"
_PATHS = "child_paths"


def is_group(path: str) -> bool:
    """Whether a file of the caches is a group file of Triton."""
    top, _, rest = path.partition("/")
    return top == TRITON and rest.rpartition("/")[2].startswith(GROUP)


def to_stored(data: bytes, folder: Path) -> bytes | None:
    """A group file as it is stored; None for one that says something else than it should.

    Args:
        data: the file's bytes.
        folder: where it lies; its members lie beside it.
    """
    if len(data) > MAX_BYTES:
        return None
    try:
        members = _members(json.loads(data))
    except (ValueError, RecursionError):
        return None
    if members is None or any(Path(path).parent != folder for path in members.values()):
        return None
    stored = {name: Path(path).name for name, path in members.items()}
    try:
        return canonical.encode({_PATHS: stored}, "group file")
    except IntegrityError:
        return None


def from_stored(data: bytes, folder: Path) -> bytes:
    """A group file as Triton reads it, for the folder where it is put.

    Raises:
        FormatError: the stored bytes are no group file of ours.
    """
    members = _members(canonical.decode(data, "group file"))
    if members is None or not all(map(is_name, members.values())):
        raise canonical.FormatError("a group file of Triton names no files beside it")
    placed = {name: str(folder / file) for name, file in members.items()}
    return json.dumps({_PATHS: placed}).encode()


def _members(value: object) -> Mapping[str, str] | None:
    found = value.get(_PATHS) if isinstance(value, dict) and set(value) == {_PATHS} else None
    if not isinstance(found, dict) or not all(isinstance(path, str) for path in found.values()):
        return None
    return found
