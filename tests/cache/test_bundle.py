"""Bundles: parts verified one by one, by the fast digest only where nobody else could write."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vcc.cache import bundle as bundles
from vcc.cache.blob import Damaged
from vcc.cache.bundle import Bundle, Part
from vcc.cache.digest import Digest, xxh3
from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.shelf import Shelf

FIRST, SECOND = b"first part", b"and a second one"
WHOLE = Digest.of(FIRST + SECOND).hex
PARTS = (
    Part(Digest.of(FIRST).hex, xxh3(FIRST), 0, len(FIRST)),
    Part(Digest.of(SECOND).hex, xxh3(SECOND), len(FIRST), len(SECOND)),
)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "cache", ("gemm", "a" * 64))
    made.publish({"kind": "x"}, {WHOLE: FIRST + SECOND})
    return made


@contextmanager
def opened(shelf: Shelf) -> Iterator[Bundle]:
    with shelf.bundle(WHOLE, len(FIRST + SECOND)) as bundle:
        yield bundle


def read(bundle: Bundle, part: Part) -> bytes:
    data = bytearray(part.size)
    bundle.read(part, memoryview(data))
    return bytes(data)


def file_of(shelf: Shelf) -> Path:
    return shelf.root / "v1" / "cas" / "sha256" / WHOLE[:2] / WHOLE


def test_parts_are_read_one_by_one_in_any_order(shelf: Shelf) -> None:
    with opened(shelf) as bundle:
        assert read(bundle, PARTS[1]) == SECOND
        assert read(bundle, PARTS[0]) == FIRST


@pytest.mark.parametrize("private", [True, False])
def test_a_damaged_part_is_found_and_the_others_serve(shelf: Shelf, private: bool) -> None:
    file = file_of(shelf)
    file.write_bytes(FIRST + SECOND.upper())
    with opened(shelf) as found:
        bundle = Bundle(found.digest, found.fd, private)
        assert read(bundle, PARTS[0]) == FIRST
        with pytest.raises(Damaged, match="byte 10") as told:
            read(bundle, PARTS[1])
    assert told.value.digest == Digest(WHOLE)


def test_the_fast_digest_counts_where_nobody_else_could_write(shelf: Shelf) -> None:
    lie = Part("0" * 64, PARTS[0].xxh3, 0, len(FIRST))
    with opened(shelf) as bundle:
        assert bundle.private
        assert read(bundle, lie) == FIRST


def test_the_slow_digest_counts_where_others_could(shelf: Shelf) -> None:
    os.chmod(file_of(shelf), 0o620)
    lie = Part(PARTS[0].sha256, "0" * 32, 0, len(FIRST))
    with opened(shelf) as bundle:
        assert not bundle.private
        assert read(bundle, lie) == FIRST
        with pytest.raises(Damaged):
            read(bundle, Part("0" * 64, PARTS[0].xxh3, 0, len(FIRST)))


def test_a_bundle_that_is_gone_or_cut_short_is_told(shelf: Shelf) -> None:
    file_of(shelf).write_bytes(FIRST)
    with pytest.raises(Damaged, match="26 expected"), opened(shelf):
        pass
    file_of(shelf).unlink()
    with pytest.raises(MissingArtifact), opened(shelf):
        pass


def test_a_part_beyond_the_end_is_damage(shelf: Shelf) -> None:
    with opened(shelf) as bundle:
        file_of(shelf).write_bytes(FIRST)
        with pytest.raises(Damaged, match="16 expected"):
            read(bundle, PARTS[1])


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, Damaged), (errno.ENOMEM, StorageError)])
def test_what_the_system_refuses_is_sorted(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    def refuse(*words: object) -> int:
        raise OSError(code, os.strerror(code))

    with opened(shelf) as bundle:
        monkeypatch.setattr(bundles.os, "preadv", refuse)
        with pytest.raises(kind):
            read(bundle, PARTS[0])


def test_a_short_read_goes_on(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.preadv
    with opened(shelf) as bundle:
        monkeypatch.setattr(
            bundles.os, "preadv", lambda fd, views, at: whole(fd, [views[0][:3]], at)
        )
        assert read(bundle, PARTS[1]) == SECOND
