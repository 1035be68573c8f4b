"""Whose files are accepted: ours, root's, listed ones; never an id that names nobody (row 93)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from vcc.cache import owners
from vcc.cache.errors import ConfigError
from vcc.cache.owners import UNKNOWN, is_accepted, is_known, is_own, writer
from vcc.cache.settings import trusted_uids


def found(mode: int, uid: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


def test_ours_and_roots_are_accepted_and_others_not(monkeypatch):
    monkeypatch.delenv("VCC_TRUSTED_UIDS", raising=False)
    assert is_accepted(os.geteuid())
    assert is_accepted(0)
    assert is_own(os.geteuid())
    assert not is_accepted(4242)
    assert not is_accepted(UNKNOWN)
    monkeypatch.setenv("VCC_TRUSTED_UIDS", "17, 4242")
    assert is_accepted(4242)
    assert not is_own(4242)


@pytest.mark.parametrize("text", ["root", "-1", "1;2", "1.5", "٣"])
def test_a_list_of_accounts_that_cannot_be_read_is_an_error(text):
    with pytest.raises(ConfigError, match="VCC_TRUSTED_UIDS"):
        trusted_uids({"VCC_TRUSTED_UIDS": text})


def test_no_list_trusts_nobody():
    assert trusted_uids({}) == trusted_uids({"VCC_TRUSTED_UIDS": " "}) == ()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o400, 0o755])
def test_the_writer_of_a_file_is_its_owner(mode):
    assert writer(found(mode, 1000)) == 1000


@pytest.mark.parametrize("mode", [0o660, 0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_may_write_has_no_one_writer(mode):
    assert writer(found(mode, 1000)) == UNKNOWN


@pytest.mark.parametrize("where", ["in a user namespace", "on the host"])
def test_the_overflow_id_names_an_account_on_the_host_only(monkeypatch, where):
    monkeypatch.setattr(owners, "_initial_namespace", lambda: where == "on the host")
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setenv("VCC_TRUSTED_UIDS", "65534")
    known = where == "on the host"
    assert is_known(65534) == is_own(65534) == is_accepted(65534) == known
    assert writer(found(0o600, 65534)) == (65534 if known else UNKNOWN)


@pytest.mark.root
def test_in_a_real_user_namespace_files_of_no_mapped_account_are_refused(tmp_path):
    """Inside, root is mapped to an account; the store of another shows as 65534."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare: a store of an account that is not mapped")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 4242, 4242)
    code = (
        "import sys; from pathlib import Path; from vcc.cache.root import opened\n"
        "from vcc.cache.trouble import Foreign\n"
        "try:\n"
        "    with opened(Path(sys.argv[1]), create=False): pass\n"
        "except Foreign as error:\n"
        "    print(error.why, '|', error.hint)\n"
    )
    command = ["unshare", "-U", "--map-root-user", sys.executable, "-c", code, str(theirs)]
    environment = {**os.environ, "VCC_TRUSTED_UIDS": "65534"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if "unshare failed" in done.stderr:
        pytest.skip("this system does not let user namespaces be made")
    assert "no id in this user namespace and shows as uid 65534" in done.stdout, done.stderr
    assert "--userns=keep-id" in done.stdout
