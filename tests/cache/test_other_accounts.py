"""Stores of other accounts: the administrator's lower directory, and root in others' folders."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from support.accounts import ANN, BEN, as_account
from support.stores import BASE, BLOBS, manifest_of

from vcc.cache.gate import Untrusted
from vcc.cache.store import Store
from vcc.cache.trouble import Unsafe
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.policy import PolicyGate

# --- root in the folders of others (row 90) -----------------------------------------------------


@pytest.mark.root
def test_root_leaves_nothing_where_it_is_refused(tmp_path, as_root):
    os.chown(tmp_path, ANN, ANN)
    with pytest.raises(Unsafe):
        Store.open(tmp_path / "store").publish(manifest_of(), BLOBS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_root_says_whose_folder_it_writes_to(tmp_path, as_root, caplog, monkeypatch):
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", ANN, ANN)
    with caplog.at_level(logging.WARNING):
        Store.open(tmp_path / "home/.cache/vcc").publish(manifest_of(), BLOBS)
    assert f"belongs to uid {ANN} and vcc runs as root" in caplog.text
    caplog.clear()
    monkeypatch.setenv("VCC_TRUSTED_UIDS", str(ANN))
    os.chown(tmp_path / "home/.cache/vcc", ANN, ANN)
    with caplog.at_level(logging.WARNING):
        Store.open(tmp_path / "home/.cache/vcc").publish(manifest_of("none"), BLOBS)
    assert "will belong to root" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        Store.open(tmp_path / "own/store").publish(manifest_of(), BLOBS)
    assert caplog.text == ""


# --- a lower directory of the administrator (D2) ------------------------------------------------


@pytest.fixture
def lower():
    """A store of root's that everybody may read, as docs/security.md makes one."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a store that another account made")
    folder = Path(tempfile.mkdtemp(prefix="vcc-test-"))
    folder.chmod(0o755)
    Store.open(folder / "store").publish(manifest_of(), BLOBS)
    for path in (folder / "store", *(folder / "store").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield folder / "store"
    shutil.rmtree(folder)


def reading_lower(lower: Path, *, admitted: bool, listed: str = ""):
    def work() -> None:
        os.environ["VCC_TRUSTED_UIDS"] = listed
        home = Path(tempfile.mkdtemp())
        try:
            gate = PolicyGate("", TrustPlace.open(Path("/nonexistent/trust")))
            store = Store(home / "store", lower=(lower,), gate=gate)
            found = store.find(BASE)
            assert len(found) == admitted
            for entry in found:
                loaded = store.load(entry)
                assert loaded.trust.startswith("written by ")
                assert loaded.read_all() == dict(BLOBS)
        finally:
            shutil.rmtree(home)

    return work


@pytest.mark.root
def test_what_the_administrator_built_is_loaded_by_everybody(lower):
    assert as_account(ANN, reading_lower(lower, admitted=True)) == 0


@pytest.mark.root
def test_a_lower_directory_of_any_other_account_is_passed_over_unless_it_is_listed(lower):
    for path in (lower, *lower.rglob("*")):
        os.chown(path, BEN, BEN)
    assert as_account(ANN, reading_lower(lower, admitted=False)) == 0
    assert as_account(ANN, reading_lower(lower, admitted=True, listed=str(BEN))) == 0


@pytest.mark.root
def test_a_lower_directory_that_a_group_may_write_needs_signatures(lower):
    lower.chmod(0o775)

    def work() -> None:
        gate = PolicyGate("", TrustPlace.open(Path("/nonexistent/trust")))
        store = Store(Path("/nonexistent/store"), lower=(lower,), gate=gate)
        (entry,) = store.find(BASE)
        with pytest.raises(Untrusted, match="its group may write"):
            store.load(entry)

    assert as_account(ANN, work) == 0
