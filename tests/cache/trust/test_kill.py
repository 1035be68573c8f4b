"""SIGKILL at each system call of signing and of changing who is trusted: old or new, never torn."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kill_matrix import CannotTrace, Row, run
from support.trusting import MAIN, Site, Terms, site_at

from vcc.cache.store import Store
from vcc.cache.trust.keyring import Keyring, TrustedKey, add_key
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.revocations import read_revocations, revoke
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.signature import sign
from vcc.cache.trust.signing import sign_entry

KEY = SecretKey.new()
NEW = TrustedKey(key="ab" * 32, name="new")


def site_of(folder: Path) -> Site:
    root, place = folder / "store", TrustPlace(folder / "trust", folder / "system", True)
    return Site(root, place, next(Store.open(root).entries()))


def prepare(folder: Path) -> None:
    site = site_at(folder)
    site.trust(KEY)
    site.sign(KEY, Terms(epoch=1), now=1_700_000_000)


def sign_again(folder: Path) -> None:
    site = site_of(folder)
    sign_entry(site.store(), site.entry, KEY, MAIN)


def old_or_new_signature(folder: Path) -> None:
    site = site_of(folder)
    assert site.why("signed") in ("signed by main", "signed by main for ci-main")
    sign_again(folder)
    assert site.why("signed") == "signed by main for ci-main"
    assert sign(KEY, site.entry.id, MAIN).artifact == site.entry.artifact


def trust_more(folder: Path) -> None:
    place = site_of(folder).place
    add_key(place, NEW)
    revoke(place, key=KEY.public)


def old_or_new_trust(folder: Path) -> None:
    place = site_of(folder).place
    names = [one.name for one in Keyring.read(place).keys]
    assert sorted(names) in (["main"], ["main", "new"])
    if read_revocations(place).keys:
        assert "new" in names
    trust_more(folder)
    assert len(Keyring.read(place).keys) == 2
    assert set(read_revocations(place).keys) == {KEY.public}


ROWS = (
    Row("sign", prepare, sign_again, old_or_new_signature),
    Row("trust", prepare, trust_more, old_or_new_trust),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_killed_at_every_system_call_it_is_as_before_or_as_after(fast_tmp, row):
    try:
        figures = run(row, fast_tmp)
    except CannotTrace as error:
        pytest.skip(str(error))
    print(f"{row.name}: {figures}")
    assert figures.killed == figures.points.total() > 0
