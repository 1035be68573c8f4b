"""Storage errors: what, why, hint."""

from __future__ import annotations

import errno

import pytest

from vcc.cache.errors import Exit, StorageError
from vcc.cache.trouble import storage, user_name


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_every_system_error_becomes_a_storage_error_with_advice(code):
    with pytest.raises(StorageError) as caught, storage("write", "/some/place"):
        raise OSError(code, "because")
    assert caught.value.exit == Exit.STORAGE
    assert "/some/place" in caught.value.what
    assert "because" in caught.value.why
    assert caught.value.hint


def test_a_full_disk_says_so():
    with pytest.raises(StorageError) as caught, storage("write", "/some/place"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "Free some space" in caught.value.hint


def test_accounts_are_named():
    assert user_name(0) == "root (uid 0)"
    assert user_name(4_000_000) == "uid 4000000"


def test_other_errors_pass_through():
    with pytest.raises(ValueError, match="x"), storage("write", "/some/place"):
        raise ValueError("x")
