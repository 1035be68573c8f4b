"""Digests."""

from __future__ import annotations

import hashlib

import pytest

from vcc.cache.digest import Digest, is_digest, xxh3
from vcc.cache.errors import UsageError


def test_a_digest_is_sha256_of_the_bytes():
    assert Digest.of(b"abc").hex == hashlib.sha256(b"abc").hexdigest()
    assert Digest.of(memoryview(b"abc")) == Digest.of(bytearray(b"abc"))


@pytest.mark.parametrize("text", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n"])
def test_text_that_is_no_digest_is_refused(text):
    assert not is_digest(text)
    with pytest.raises(UsageError, match="not a digest"):
        Digest(text)


def test_xxh3_is_128_bits():
    assert len(xxh3(b"")) == 32
    assert xxh3(b"a") != xxh3(b"b")
