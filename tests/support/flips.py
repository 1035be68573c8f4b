"""Damage of every kind to the files of one artifact, each undone again: is all of it seen?

Files are changed in place, so that ten thousand changes take seconds.
"""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.stores import blob_path, quiet, ref_path
from vcc.cache.blob import Damaged
from vcc.cache.refs import read_refs
from vcc.cache.request import Entry
from vcc.cache.tiers import reading

BLOCK = 4096
TABLE_HEADER = 40 + 16 * 24
ELF_HEADER = 64
JSON = ("ref", "manifest", "program", "library-table")
"""Kinds without a header of their own: every byte of them counts as one."""


@dataclass(frozen=True)
class Target:
    """One file, and whether the store refuses it as it is now.

    Args:
        kind: kind of blob, or "ref" or "manifest".
        path: the file.
        refused: True: named as damaged; False: taken for good.
    """

    kind: str
    path: Path
    refused: Callable[[], bool]

    @property
    def data(self) -> bytes:
        """Its bytes now."""
        return self.path.read_bytes()


def targets(root: Path, entry: Entry, *, full: bool) -> list[Target]:
    """All files of an artifact.

    Args:
        full: compare SHA-256 everywhere; False takes XXH3-128 where the store would.
    """
    store = quiet(root)
    loaded = store.load(entry, full=full)

    def ref_is_bad() -> bool:
        with reading(store.tiers[0]) as v1:
            found = read_refs(v1, entry.base.digest.hex)
        return entry not in found.entries and entry.artifact in dict(found.bad)

    def damaged(read: Callable[[], object]) -> Callable[[], bool]:
        def refused() -> bool:
            try:
                read()
            except Damaged:
                return True
            return False

        return refused

    found = [
        Target("ref", ref_path(root, entry), ref_is_bad),
        Target("manifest", blob_path(root, entry.id), damaged(lambda: store.load(entry))),
    ]
    for name, ref in sorted(loaded.manifest.blobs.items()):
        read = damaged(lambda name=name: loaded.read(name))
        found.append(Target(ref.kind, blob_path(root, ref.sha256), read))
    assert not any(target.refused() for target in found)
    return found


def header_size(kind: str, data: bytes) -> int:
    """How many bytes at the beginning say how the rest is read."""
    if kind in JSON:
        return len(data)
    if kind == "golden":  # safetensors
        return 8 + struct.unpack_from("<Q", data)[0]
    sizes = {"table": TABLE_HEADER, "library": ELF_HEADER, "cubin": ELF_HEADER}
    return min(len(data), sizes.get(kind, 0))


def flip_headers(found: list[Target], steps: Mapping[str, int] | None = None) -> Counter[str]:
    """A bit of every byte of every header; how many by kind. Raises AssertionError if unseen.

    Args:
        found: the files.
        steps: by kind, to take every n-th byte only.
    """
    done: Counter[str] = Counter()
    for target in found:
        data = target.data
        for at in range(0, header_size(target.kind, data), (steps or {}).get(target.kind, 1)):
            _flip(target, data, at, at % 8)
            done[target.kind] += 1
    return done


def flip_at_random(found: list[Target], count: int, seed: int) -> Counter[str]:
    """`count` random bits in each kind of file; as `flip_headers`."""
    chance, done = random.Random(seed), Counter()
    contents = {target: target.data for target in found}
    for kind in sorted({target.kind for target in found}):
        of_kind = [target for target in found if target.kind == kind and contents[target]]
        for _ in range(count):
            target = chance.choice(of_kind)
            data = contents[target]
            _flip(target, data, chance.randrange(len(data)), chance.randrange(8))
            done[kind] += 1
    return done


def other_damage(found: list[Target]) -> Counter[str]:
    """Cut, lengthened, zeroed and swapped files; how many by what was done."""
    done: Counter[str] = Counter()
    for target in found:
        for what, changed in _forms(target.data):
            with _replaced({target: changed}):
                assert target.refused(), f"{what} {target.kind} {target.path.name} is not seen"
            done[what] += 1
    for one, two in _pairs(found):
        with _replaced({one: two.data, two: one.data}):
            assert one.refused() and two.refused(), f"swapped {one.kind} and {two.kind}"  # noqa: PT018
        done["swapped"] += 1
    return done


def _forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    for size in sorted({0, 1, len(data) // 2, len(data) - 1}):
        if 0 <= size < len(data):
            yield "cut", data[:size]
    yield "lengthened", data + b"\0"
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        if any(block):
            yield "zeroed block", data[:at] + bytes(len(block)) + data[at + BLOCK :]


def _pairs(found: list[Target]) -> Iterator[tuple[Target, Target]]:
    """Each file with the next of its kind, and with one of another kind."""
    for one, two in zip(found, [*found[1:], found[0]], strict=True):
        if one.path != two.path:
            yield one, two


def _flip(target: Target, data: bytes, at: int, bit: int) -> None:
    fd = os.open(target.path, os.O_WRONLY)
    try:
        os.pwrite(fd, bytes([data[at] ^ 1 << bit]), at)
        seen = target.refused()
        os.pwrite(fd, data[at : at + 1], at)
    finally:
        os.close(fd)
    assert seen, f"bit {bit} of byte {at} of {target.kind} {target.path.name} is not seen"


@contextmanager
def _replaced(contents: Mapping[Target, bytes]) -> Iterator[None]:
    before = {target: target.data for target in contents}
    for target, data in contents.items():
        target.path.write_bytes(data)
    yield
    for target, data in before.items():
        target.path.write_bytes(data)
