"""Which signatures count: time, revocation, strangers, and floods of files (row 91)."""

from __future__ import annotations

import time

import pytest
from support.trusting import Terms

from vcc.cache.root import opened
from vcc.cache.trust import judged as module
from vcc.cache.trust.judged import Judged, judge
from vcc.cache.trust.keyring import Keyring
from vcc.cache.trust.revocations import read_revocations, revoke
from vcc.cache.trust.statement import MAX_STATEMENT

DAY = 86400
TEN_YEARS = 3653 * DAY


def judged(site) -> Judged:
    with opened(site.root, create=False) as store:
        ring = Keyring.read(site.place)
        return judge(store, site.entry.id, ring, read_revocations(site.place))


def test_no_signature(site, key):
    site.trust(key)
    assert judged(site) == Judged((), ())


def test_a_good_one(site, key):
    site.trust(key)
    site.sign(key)
    found = judged(site)
    assert [(k.name, s.epoch) for k, s in found.good] == [("main", 7)]
    assert found.bad == ()


def test_a_signature_by_a_stranger_is_named_and_does_not_count(site, key, other):
    site.trust(key)
    site.sign(other)
    found = judged(site)
    assert found.good == ()
    assert found.bad == (f"signed by keys that are not trusted here: {other.public[:12]}",)


def test_one_good_signature_of_two_is_enough(site, key, other):
    site.trust(key)
    site.trust(other, "other")
    site.sign(key)
    site.put(other.public, b"{}")
    found = judged(site)
    assert [k.name for k, _ in found.good] == ["main"]
    assert "signature of other is bad" in found.bad[0]


def test_an_expired_signature_does_not_count(site, key):
    site.trust(key)
    site.sign(key, Terms(lifetime_s=DAY), now=time.time() - 2 * DAY)
    assert "expired at" in judged(site).bad[0]


def test_a_signature_from_the_future_says_that_a_clock_is_wrong(site, key):
    site.trust(key)
    site.sign(key, now=time.time() + DAY)
    (why,) = judged(site).bad
    assert "not yet valid" in why
    assert "check both clocks" in why


def test_clocks_may_differ_by_minutes(site, key):
    site.trust(key)
    site.sign(key, now=time.time() + module.SKEW_S - 10)
    assert judged(site).good


@pytest.mark.parametrize(
    ("shift", "counts"), [(-TEN_YEARS, False), (-10, True), (TEN_YEARS, False), (1e30, False)]
)
def test_a_wrong_clock_here_is_a_clear_reason_and_never_a_crash(
    site, key, monkeypatch, shift, counts
):
    """Row 83, with a signature of 90 days."""
    site.trust(key)
    site.sign(key, Terms(lifetime_s=90 * DAY))
    now = time.time() + shift
    monkeypatch.setattr(module.time, "time", lambda: now)
    found = judged(site)
    assert bool(found.good) == counts
    if not counts:
        assert "clock" in found.bad[0]


def test_a_revoked_key_does_not_count_whenever_it_signed(site, key):
    site.trust(key)
    site.sign(key, now=1.0)
    revoke(site.place, key=key.public, why="laptop stolen")
    assert "revoked on" in judged(site).bad[0]
    assert "laptop stolen" in judged(site).bad[0]


def test_a_key_for_certain_builders_speaks_for_no_other(site, key):
    site.trust(key, "main", "ci-pr")
    site.sign(key)
    assert "may not speak for builder 'ci-main'" in judged(site).bad[0]


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"\xff" * 100, b"[" * 10000, b'"' + b"a" * MAX_STATEMENT + b'"'],
    ids=["empty", "object", "bytes", "depth", "huge"],
)
def test_wrong_files_are_no_signatures(site, key, data):
    site.trust(key)
    site.put(key.public, data)
    assert judged(site).good == ()


def test_a_copy_of_another_artifacts_signature_does_not_count(site, key, tmp_path):
    from support.trusting import site_at

    (tmp_path / "b").mkdir()
    second = site_at(tmp_path / "b", "none")
    second.sign(key)
    data = second.root / "v1/signatures" / second.entry.artifact / key.public
    site.trust(key)
    site.put(key.public, data.read_bytes())
    assert "over another artifact" in judged(site).bad[0]


def test_a_flood_of_files_hides_no_signature_and_is_not_read(site, key, monkeypatch):
    site.trust(key)
    site.sign(key)
    folder = site.root / "v1/signatures" / site.entry.artifact
    for number in range(2000):
        (folder / f"{number:064x}").write_bytes(b"x")
    read = []
    real = module.signature_file
    monkeypatch.setattr(module, "signature_file", lambda *a: read.append(a) or real(*a))
    found = judged(site)
    assert [k.name for k, _ in found.good] == ["main"]
    assert len(read) == 1
    assert len(found.bad[0]) < 400
