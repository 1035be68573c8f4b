"""Revocations of both trust folders count, and a broken list is never an empty one."""

from __future__ import annotations

import pytest

from vcc.cache.canonical import FormatError
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.revocations import FILE, Revocations, Revoked, read_revocations, revoke


def test_nothing_is_revoked_at_first(place):
    assert read_revocations(place) == Revocations()


def test_revocations_add_up(place):
    revoke(place, artifact="ab" * 32, why="wrong numbers")
    revoke(place, key="cd" * 32)
    revoke(TrustPlace(place.system, place.system, True), key="ef" * 32, why="lost")
    found = read_revocations(place)
    assert set(found.artifacts) == {"ab" * 32}
    assert set(found.keys) == {"cd" * 32, "ef" * 32}
    assert str(found.artifacts["ab" * 32]).endswith("(wrong numbers)")


@pytest.mark.parametrize("entry", [{"artifacts": {"ab": 1}}, {"keys": {"*": 1}}], ids=str)
def test_an_entry_that_revokes_nothing_is_an_error(place, entry):
    fields = {name: {key: Revoked(0) for key in value} for name, value in entry.items()}
    place.write(FILE, Revocations(**fields))
    with pytest.raises(FormatError, match="revokes nothing"):
        read_revocations(place)


def test_any_time_has_a_text():
    assert str(Revoked(0)) == "revoked on 1970-01-01"
    for at in (-(1 << 53), 1 << 53):
        assert str(Revoked(at)).startswith("revoked on ")
