"""Whose artifacts are loaded: own, signed and prod, and that refused code is never read (G10)."""

from __future__ import annotations

import os

import pytest
from support.stores import BLOBS, manifest_of
from support.trusting import Site, Terms, refused

from vcc.cache.folder import Folder
from vcc.cache.gate import Untrusted, gate_of
from vcc.cache.pulled import Mark, write_mark
from vcc.cache.root import opened
from vcc.cache.settings import read_settings
from vcc.cache.store import Store
from vcc.cache.trust.place import SYSTEM, TrustPlace
from vcc.cache.trust.policy import PolicyGate
from vcc.cache.trust.publickey import MissingExtra
from vcc.cache.trust.remotes import change_remotes
from vcc.cache.trust.revocations import FILE as REVOCATIONS
from vcc.cache.trust.revocations import revoke

URL = "s3://bucket/cache"
POLICIES = ("own", "signed", "prod")


def mark(site: Site, *, by_hand: bool = False) -> None:
    with opened(site.root, create=True) as store, store.below("tmp", create=True) as own:
        write_mark(store, own, site.entry.artifact, Mark(url=URL, when=1, by_hand=by_hand))


def disown(site: Site) -> None:
    """Let the manifest be one that more accounts than ours could have written."""
    name = site.entry.artifact
    (site.root / "v1/cas/sha256" / name[:2] / name).chmod(0o660)


def test_the_settings_choose_the_gate(tmp_path):
    settings = read_settings({"VCC_POLICY": "prod", "VCC_TRUST_DIR": str(tmp_path)})
    assert gate_of(settings) == PolicyGate("prod", TrustPlace(tmp_path, SYSTEM, True))
    assert gate_of(settings).fails_closed
    assert not gate_of(settings).fast_check
    assert gate_of(read_settings({})).fast_check
    assert not gate_of(read_settings({})).fails_closed


def test_code_without_a_signature_is_used_under_own_only(site):
    """The GEMM store of a site bears none."""
    assert site.gate().takes_unsigned(site.root)
    assert site.gate("own").takes_unsigned(site.root / "none")
    for policy in ("signed", "prod"):
        assert not site.gate(policy).takes_unsigned(site.root)
    site.root.chmod(0o770)
    assert not site.gate().takes_unsigned(site.root)
    assert site.gate("own").takes_unsigned(site.root)
    site.root.chmod(0o777)
    assert not site.gate().takes_unsigned(site.root)


# --- own -------------------------------------------------------------------------------------


def test_own_admits_what_this_account_wrote_without_reading_a_key(site, monkeypatch):
    monkeypatch.setattr("vcc.cache.trust.policy.Case.judged", lambda case: 1 / 0)
    who = "root" if os.geteuid() == 0 else "this account"
    assert site.why() in ("written by this account", f"written by {who}")


def test_own_does_not_admit_a_file_that_others_could_have_written(site):
    disown(site)
    assert "others than its owner can change its file" in refused(site).why


@pytest.mark.root
def test_own_does_not_admit_what_another_account_wrote(site, as_root):
    gate, tier = site.gate(), site.store().tiers[0]
    with opened(site.root, create=False) as store, pytest.raises(Untrusted) as caught:
        gate.admit(store, tier, site.entry, b"", 65534)
    assert "written by nobody (uid 65534)" in caught.value.why


def test_own_admits_what_is_signed(site, key):
    disown(site)
    site.trust(key)
    site.sign(key)
    assert site.why() == "signed by main for ci-main"


def test_a_pulled_artifact_is_not_own(site):
    mark(site)
    error = refused(site)
    assert f"pulled from {URL}, which is not a trusted remote" in error.why
    assert "it is not signed" in error.why
    assert "vcc trust add --remote" in error.hint


def test_a_pull_from_a_trusted_remote_counts_as_own(site, place):
    mark(site)
    change_remotes(place, "s3://bucket", trusted=True)
    refused(site)
    change_remotes(place, URL, trusted=True)
    assert site.why() == f"pulled from the trusted remote {URL}"


def test_a_pull_by_hand_is_admitted_and_says_so(site):
    mark(site, by_hand=True)
    assert site.why() == f"taken from {URL} by hand"


def test_a_signed_pull_is_admitted(site, key):
    mark(site)
    site.trust(key)
    site.sign(key, Terms())
    assert site.why() == "signed by main"


@pytest.mark.parametrize("by_hand", [True, False])
def test_pickles_that_were_pulled_need_a_signature(site, place, key, by_hand):
    """vcc never reads them, but the program that gets them does."""
    store = Store(site.root, gate=site.gate("own").for_pickles())
    assert store.load(site.entry).trust.startswith("written by")
    mark(site, by_hand=by_hand)
    change_remotes(place, URL, trusted=True)
    assert site.why("own")
    with pytest.raises(Untrusted, match="holds pickles"):
        store.load(site.entry)
    site.trust(key)
    site.sign(key)
    assert store.load(site.entry).trust == "signed by main for ci-main"


@pytest.mark.parametrize("data", [b"", b"{}", b"x" * 5000, b'{"by_hand":true}'])
def test_a_mark_that_cannot_be_read_admits_nothing(site, data):
    mark(site, by_hand=True)
    (site.root / "v1/pulled" / site.entry.artifact).write_bytes(data)
    assert "cannot be known" in refused(site).why


# --- signed ----------------------------------------------------------------------------------


def test_signed_admits_signatures_only(site, key):
    assert "it is not signed" in refused(site, "signed").why
    site.sign(key)
    assert "keys that are not trusted" in refused(site, "signed").why
    site.trust(key)
    assert site.why("signed") == "signed by main for ci-main"


@pytest.mark.parametrize("how", ["by hand", "from a trusted remote"])
def test_signed_takes_no_word_for_a_signature(site, place, how):
    mark(site, by_hand=how == "by hand")
    change_remotes(place, URL, trusted=True)
    assert "it is not signed" in refused(site, "signed").why


def test_signed_is_the_default_where_a_group_may_write_the_root(site, key):
    site.root.chmod(0o770)
    error = refused(site)
    assert "policy signed (its group may write the store)" in error.what
    assert f"chmod g-w {site.root}" in error.hint
    assert "VCC_POLICY=own" in error.hint
    assert site.why("own").startswith("written by")
    site.trust(key)
    site.sign(key)
    assert site.why() == "signed by main for ci-main"


# --- revocation, and what cannot be known -------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_revoked_artifact_is_refused_under_every_policy(site, key, policy):
    site.trust(key, "main", "ci-main")
    site.sign(key)
    site.rule()
    assert site.why(policy)
    revoke(site.place, artifact=site.entry.artifact, why="wrong numbers")
    assert "(wrong numbers)" in refused(site, policy).why


@pytest.mark.parametrize("policy", POLICIES)
def test_a_revoked_key_is_refused_under_every_policy(site, key, policy):
    disown(site)
    site.trust(key, "main", "ci-main")
    site.sign(key)
    site.rule()
    assert site.why(policy)
    revoke(site.place, key=key.public)
    assert "the key was revoked" in refused(site, policy).why


@pytest.mark.parametrize("policy", POLICIES)
def test_revocations_that_cannot_be_read_admit_nothing(site, policy):
    site.place.write(REVOCATIONS, {})
    (site.place.user / REVOCATIONS).write_bytes(b"{")
    error = refused(site, policy)
    assert "whom to trust cannot be known" in error.why
    assert REVOCATIONS in error.why


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unsafe_trust_folder_admits_nothing(site, policy):
    site.place.write(REVOCATIONS, {})
    site.place.user.chmod(0o770)
    error = refused(site, policy)
    assert "others than its owner can change it" in error.why
    assert f"chmod go-w {site.place.user}" in error.hint


def test_without_cryptography_a_signature_admits_nothing(site, key, monkeypatch):
    def missing(name):
        raise MissingExtra("signatures cannot be checked", "no module", "install it")

    site.trust(key)
    site.sign(key)
    monkeypatch.setattr("vcc.cache.trust.signature.crypto", missing)
    assert refused(site, "signed").hint == "install it"
    assert site.why("own").startswith("written by")


# --- nothing is read before the gate has opened -------------------------------------------------


@pytest.mark.parametrize("policy", ["signed", "prod"])
def test_no_blob_of_a_refused_artifact_is_ever_read(site, monkeypatch, policy):
    """G10: unsigned code is not even brought into memory."""
    names: list[str] = []
    real = Folder.content

    def recorded(folder, name, **options):
        names.append(name)
        return real(folder, name, **options)

    monkeypatch.setattr(Folder, "content", recorded)
    refused(site, policy)
    blobs = {ref.sha256 for ref in manifest_of().with_blobs(BLOBS).blobs.values()}
    assert site.entry.artifact in names
    assert not blobs & set(names)


def test_the_manifest_is_not_even_parsed_before_the_gate(site, monkeypatch):
    monkeypatch.setattr("vcc.cache.manifest.Manifest.decode", lambda data: 1 / 0)
    refused(site, "signed")


def test_a_refused_artifact_is_left_where_it_is(site):
    store = site.store("signed")
    with pytest.raises(Untrusted) as caught:
        store.load(site.entry)
    store.quarantine(site.entry, caught.value)
    assert not (site.root / "v1/quarantine").exists()
    assert site.why("own")


def test_a_warm_boot_under_own_imports_no_cryptography(site):
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path\n"
        "from vcc.cache.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "print(store.load(next(store.entries())).trust)\n"
        "heavy = ('cryptography', 'platformdirs', 'vcc.cache.trust.signature')\n"
        "sys.exit([name for name in heavy if name in sys.modules] or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(site.root)], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"written by" in done.stdout
