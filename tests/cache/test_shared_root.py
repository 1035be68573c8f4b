"""A root that its group may write (D3): everybody reads, nobody is believed without a signature."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from support.accounts import ANN, BEN, GROUP, as_account
from support.stores import BASE, BLOBS, blob_path, manifest_of, ref_path

from vcc.cache.gate import Untrusted
from vcc.cache.root import opened
from vcc.cache.store import Store
from vcc.cache.trouble import Unsafe
from vcc.cache.trust.keyring import TrustedKey, add_key
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.policy import PolicyGate
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.signature import Terms
from vcc.cache.trust.signing import sign_entry


@pytest.fixture
def shared():
    """A root of root's, which group 54321 may write, and a folder for what tests leave."""
    if os.geteuid() != 0:
        pytest.skip("needs root: two accounts of one group")
    folder = Path(tempfile.mkdtemp(prefix="vcc-test-"))
    folder.chmod(0o755)
    root = folder / "store"
    root.mkdir()
    os.chown(root, 0, GROUP)
    root.chmod(0o2770)
    yield root
    shutil.rmtree(folder)


def publish(root: Path, mode: str = "full"):
    def work() -> None:
        os.umask(0o077)
        Store.open(root).publish(manifest_of(mode), BLOBS)

    return work


@pytest.mark.root
def test_what_one_member_makes_the_others_can_read_and_none_can_change(shared):
    assert as_account(ANN, publish(shared)) == 0
    assert as_account(BEN, publish(shared, "none")) == 0
    for path in (shared / "v1").rglob("*"):
        found = path.stat()
        assert found.st_gid == GROUP, path
        if path.is_file():
            assert found.st_mode & 0o777 == (0o600 if "locks" in path.parts else 0o640), path
        else:
            assert found.st_mode & 0o7777 == 0o2770, path


@pytest.mark.root
def test_a_member_loads_its_own_under_own_and_anothers_never(shared):
    assert as_account(ANN, publish(shared)) == 0

    def read(policy: str, admitted: bool):
        def work() -> None:
            gate = PolicyGate(policy, TrustPlace.open(Path("/nonexistent/trust")))
            store = Store(shared, gate=gate)
            (entry,) = store.find(BASE)
            if admitted:
                assert store.load(entry).read_all() == dict(BLOBS)
                return
            with pytest.raises(Untrusted):
                store.load(entry)

        return work

    assert as_account(ANN, read("own", True)) == 0
    assert as_account(ANN, read("", False)) == 0
    assert as_account(BEN, read("own", False)) == 0
    assert as_account(BEN, read("", False)) == 0


@pytest.mark.root
def test_a_signed_artifact_of_another_member_is_loaded(shared):
    key = SecretKey.new()
    assert as_account(ANN, publish(shared)) == 0

    def sign() -> None:
        store = Store.open(shared)
        (entry,) = store.find(BASE)
        sign_entry(store, entry, key, Terms())

    def read() -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            place = TrustPlace(folder / "trust", folder / "none", True)
            add_key(place, TrustedKey(key=key.public, name="ann"))
            store = Store(shared, gate=PolicyGate("", place))
            (entry,) = store.find(BASE)
            loaded = store.load(entry)
            assert loaded.trust == "signed by ann"
            assert loaded.read_all() == dict(BLOBS)
        finally:
            shutil.rmtree(folder)

    assert as_account(ANN, sign) == 0
    assert as_account(BEN, read) == 0


@pytest.mark.root
def test_the_fast_check_is_not_enough_where_others_can_swap_files(shared):
    assert as_account(ANN, publish(shared)) == 0

    def work() -> None:
        with opened(shared, create=False) as store, store.below("cas") as folder:
            assert store.shared
            assert folder.shared
            assert not folder.private

    assert as_account(ANN, work) == 0


@pytest.mark.root
def test_the_folder_of_a_publisher_is_closed_to_the_group(shared):
    from vcc.cache.publish import own_folder

    def work() -> None:
        os.umask(0)
        with opened(shared, create=True) as store, own_folder(store) as own:
            assert os.fstat(own.fd).st_mode & 0o777 == 0o700
            assert os.fstat(own.fd).st_gid == GROUP

    assert as_account(ANN, work) == 0


@pytest.mark.root
def test_rights_are_never_given_to_another_group_than_the_roots(shared):
    """Without the set-group-id bit new files get the writer's own group: it must see nothing."""
    shared.chmod(0o770)
    assert as_account(ANN, publish(shared), own_group=100) == 0
    for path in (shared / "v1", *(shared / "v1").rglob("*")):
        found = path.stat()
        assert found.st_gid == GROUP or not found.st_mode & 0o077, path


@pytest.mark.root
def test_what_was_planted_in_a_shared_store_is_damage_and_never_followed(shared):
    assert as_account(ANN, publish(shared)) == 0
    entry = next(iter(Store.open(shared).entries()))
    manifest = blob_path(shared, entry.artifact)
    kept = manifest.read_bytes()
    manifest.unlink()
    (shared.parent / "kept").write_bytes(kept)
    manifest.symlink_to(shared.parent / "kept")

    def work() -> None:
        gate = PolicyGate("own", TrustPlace.open(Path("/nonexistent/trust")))
        store = Store(shared, on_damage=lambda damage: None, gate=gate)
        (found,) = store.find(BASE)
        try:
            store.load(found)
        except Untrusted:
            raise
        except Exception:
            return
        raise AssertionError("a symlink was followed")

    assert as_account(BEN, work) == 0
    assert ref_path(shared, entry).exists()


@pytest.mark.root
@pytest.mark.parametrize("owner", [ANN, BEN])
def test_a_shared_root_must_belong_to_us_to_root_or_to_a_listed_account(shared, owner):
    os.chown(shared, ANN, GROUP)

    def read(listed: str):
        def work() -> None:
            os.environ["VCC_TRUSTED_UIDS"] = listed
            if owner == ANN or listed:
                Store.open(shared).find(BASE)
                return
            with pytest.raises(Unsafe) as caught:
                Store.open(shared).find(BASE)
            assert f"VCC_TRUSTED_UIDS={ANN}" in caught.value.hint

        return work

    assert as_account(owner, read("")) == 0
    assert as_account(owner, read(str(ANN))) == 0


@pytest.mark.root
def test_everyone_may_never_write_a_root_shared_or_not(shared):
    shared.chmod(0o2777)

    def work() -> None:
        with pytest.raises(Unsafe, match="not safe"):
            Store.open(shared).find(BASE)

    assert as_account(ANN, work) == 0
