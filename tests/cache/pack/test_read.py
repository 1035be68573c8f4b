"""Reading packs: every byte counts, and hostile ones cost little."""

from __future__ import annotations

import io
import random

import pytest
from support.packs import drain
from support.stores import BLOBS, flipped

from vcc.cache.errors import VccError
from vcc.cache.pack.form import HEAD, PackError, length_of
from vcc.cache.pack.read import PackReader, exactly


def test_a_pack_is_read_in_one_pass(packed, source):
    class Forward(io.BytesIO):
        def seek(self, *args):
            raise AssertionError("a pipe cannot")

        tell = seek

    reader = PackReader.open(Forward(packed))
    assert {one.entry for one in reader.artifacts} == set(source.entries())
    assert sum(1 for _, parts in reader.blobs() for _ in [*parts]) == len(BLOBS) + 1


def test_every_flipped_byte_of_the_head_is_seen(packed):
    end = HEAD + length_of(packed[:HEAD])
    for offset in range(end):
        with pytest.raises(VccError):
            drain(flipped(packed, offset, offset % 8))


def test_flipped_bytes_anywhere_are_seen(packed):
    draw = random.Random(7)
    for _ in range(1000):
        with pytest.raises(VccError):
            drain(flipped(packed, draw.randrange(len(packed)), draw.randrange(8)))


def test_a_pack_that_is_cut_off_anywhere_is_seen(packed):
    for length in {0, 1, HEAD - 1, HEAD, HEAD + 1, len(packed) // 2, len(packed) - 1}:
        with pytest.raises(PackError):
            drain(packed[:length])


@pytest.mark.parametrize("more", [b"\0", b"x" * 1000])
def test_what_comes_after_the_end_is_seen(packed, more):
    with pytest.raises(PackError, match="more in the file"):
        drain(packed + more)


def test_two_blobs_in_each_others_place_are_seen(packed):
    one, two = BLOBS["program"], BLOBS["piece/0.json"]
    assert len(one) == len(two)
    swapped = packed.replace(one, b"?" * len(one)).replace(two, one).replace(b"?" * len(one), two)
    assert swapped != packed
    with pytest.raises(PackError, match="does not match"):
        drain(swapped)


def test_a_stream_in_small_parts_is_read(packed):
    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 7))

    reader = PackReader.open(Slow(packed))
    assert len(reader.artifacts) == 2


def test_exactly_means_exactly():
    assert exactly(io.BytesIO(b"abc"), 2) == b"ab"
    with pytest.raises(PackError, match="cut off"):
        exactly(io.BytesIO(b"abc"), 4)
