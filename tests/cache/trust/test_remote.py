"""Trust and a remote: what may come in, and that a refused artifact keeps nothing away."""

from __future__ import annotations

import pytest
from support.remotes import push_all
from support.stores import BLOBS, manifest_of
from support.trusting import MAIN, Site, Terms, site_at

from vcc.cache.gate import Untrusted
from vcc.cache.remote.source import Source
from vcc.cache.store import Store
from vcc.cache.trust.keyring import file_of
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.policy import PolicyGate
from vcc.cache.trust.remotes import change_remotes
from vcc.cache.trust.revocations import revoke
from vcc.cache.trust.signing import sign_entry


@pytest.fixture
def far(tmp_path):
    """Where CI builds: a site of its own, and the URL that it pushes to."""
    (tmp_path / "ci").mkdir()
    site = site_at(tmp_path / "ci")
    return site, f"file://{tmp_path}/remote"


@pytest.fixture
def here(tmp_path) -> TrustPlace:
    """The trust folders of the machine that loads."""
    return TrustPlace(tmp_path / "here", tmp_path / "none", True)


def asking(tmp_path, url: str, place: TrustPlace, policy: str = "") -> tuple[Store, list[str]]:
    """A store that asks the remote on a miss, and what it is told."""
    told: list[str] = []
    gate = PolicyGate(policy, place)
    store = Store(
        tmp_path / "near",
        on_damage=lambda damage: None,
        gate=gate,
        remote=Source(url, gate, told.append),
        on_trouble=lambda error: told.append(str(error)),
    )
    return store, told


def local(site: Site, place: TrustPlace) -> Site:
    return Site(site.root, place, site.entry)


def test_an_unsigned_artifact_does_not_come_in_by_itself(far, here, tmp_path):
    site, url = far
    push_all(site.store(), url)
    store, told = asking(tmp_path, url, here)
    assert store.find(site.entry.base) == ()
    assert "not a trusted remote" in " ".join(told)
    blobs = [path for path in (tmp_path / "near").rglob("*") if path.is_file()]
    assert not {path.name for path in blobs} & {
        ref.sha256 for ref in manifest_of().with_blobs(BLOBS).blobs.values()
    }


def test_from_a_trusted_remote_it_does(far, here, tmp_path):
    site, url = far
    push_all(site.store(), url)
    change_remotes(here, url, trusted=True)
    store, _ = asking(tmp_path, url, here)
    (entry,) = store.find(site.entry.base)
    assert store.load(entry).trust == f"pulled from the trusted remote {url}"
    change_remotes(here, url, trusted=False)
    with pytest.raises(Untrusted):
        store.load(entry)


@pytest.mark.parametrize("policy", ["", "signed", "prod"])
def test_a_signed_artifact_does_under_every_policy(far, here, tmp_path, key, policy):
    site, url = far
    site.sign(key)
    push_all(site.store(), url)
    local(site, here).trust(key, "ci", "ci-main")
    local(site, here).rule()
    store, _ = asking(tmp_path, url, here, policy)
    (entry,) = store.find(site.entry.base)
    loaded = store.load(entry)
    assert loaded.trust.startswith("signed by ci for ci-main")
    assert loaded.read_all() == dict(BLOBS)


def test_a_refused_local_artifact_does_not_keep_the_right_one_away(far, here, tmp_path, key):
    """CREEP in the local store: something unsigned answers, the remote has the signed one."""
    site, url = far
    site.sign(key)
    push_all(site.store(), url)
    local(site, here).trust(key, "ci", "ci-main")
    local(site, here).rule()
    store, _ = asking(tmp_path, url, here, "prod")
    evil = store.publish(
        manifest_of(created=1_800_000_000), {**BLOBS, "piece/0.so": b"\x7fELFevil"}
    )
    first, second = store.find(site.entry.base)
    assert (first, second) == (evil, site.entry)
    with pytest.raises(Untrusted):
        store.load(first)
    assert store.load(second).read_all() == dict(BLOBS)


def test_after_a_key_was_rotated_the_new_signature_is_fetched(far, here, tmp_path, key, other):
    site, url = far
    site.sign(key)
    push_all(site.store(), url)
    near = local(site, here)
    near.trust(key, "old")
    store, _ = asking(tmp_path, url, here, "signed")
    (entry,) = store.find(site.entry.base)
    assert store.load(entry).trust == "signed by old for ci-main"
    sign_entry(site.store(), site.entry, other, MAIN)
    push_all(site.store(), url)
    near.trust(other, "new")
    here.remove(file_of(key.public))
    (entry,) = store.find(site.entry.base)
    assert store.load(entry).trust == "signed by new for ci-main"


def test_a_revoked_artifact_does_not_come_back(far, here, tmp_path, key):
    site, url = far
    site.sign(key, Terms())
    push_all(site.store(), url)
    local(site, here).trust(key)
    revoke(here, artifact=site.entry.artifact, why="wrong numbers")
    store, told = asking(tmp_path, url, here, "signed")
    assert store.find(site.entry.base) == ()
    assert "wrong numbers" in " ".join(told)


def test_a_hit_that_loads_asks_no_remote(site, tmp_path):
    class Never:
        url = "s3://never"

        def bring(self, *asked):
            raise AssertionError("the remote was asked")

    store = Store(site.root, gate=site.gate(), remote=Never())
    assert store.find(site.entry.base) == (site.entry,)
