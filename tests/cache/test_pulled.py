"""Marks: written whole, read with care."""

from __future__ import annotations

import pytest

from vcc.cache.canonical import FormatError
from vcc.cache.publish import own_folder
from vcc.cache.pulled import Mark, read_mark, remove_mark, write_mark
from vcc.cache.root import opened

ARTIFACT = "a" * 64


@pytest.fixture
def folder(root):
    with opened(root, create=True) as store:
        yield store


def write(folder, mark):
    with own_folder(folder) as own:
        write_mark(folder, own, ARTIFACT, mark)


def test_a_mark_is_read_as_it_was_written(folder):
    mark = Mark(url="s3://bucket/x", when=1_700_000_000, by_hand=True)
    assert read_mark(folder, ARTIFACT) is None
    write(folder, mark)
    assert read_mark(folder, ARTIFACT) == mark


def test_a_later_mark_takes_its_place(folder):
    write(folder, Mark(url="s3://bucket/x", when=1))
    write(folder, Mark(url="pack", when=2, by_hand=True))
    assert read_mark(folder, ARTIFACT).url == "pack"


def test_a_mark_can_be_removed(folder):
    write(folder, Mark(url="pack", when=2))
    remove_mark(folder, ARTIFACT)
    remove_mark(folder, ARTIFACT)
    assert read_mark(folder, ARTIFACT) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"by_hand":1,"url":"x","when":1}', b"x" * 5000,
     b'{"by_hand":true,"url":"x","when":-1}',
     b'{"by_hand":true,"url":"x","when":1} '],
)  # fmt: skip
def test_a_mark_that_cannot_be_read_is_no_missing_one(root, folder, data):
    place = root / "v1" / "pulled"
    place.mkdir(mode=0o700)
    (place / ARTIFACT).write_bytes(data)
    with pytest.raises(FormatError):
        read_mark(folder, ARTIFACT)
