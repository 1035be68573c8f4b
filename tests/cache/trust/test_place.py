"""Trust folders: strict files in safe folders; what cannot be known is never passed over."""

from __future__ import annotations

import json
import os

import msgspec
import platformdirs
import pytest
from support.stores import child, exit_of

from vcc.cache.canonical import FormatError
from vcc.cache.errors import StorageError
from vcc.cache.settings import user_trust_folder
from vcc.cache.trouble import Foreign, Unsafe
from vcc.cache.trust.place import MAX_TRUST_FILE, SYSTEM, TrustPlace, parse


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    count: int = 0


@pytest.fixture
def place(tmp_path):
    return TrustPlace(tmp_path / "user", tmp_path / "system", True)


def test_the_default_folder_is_the_one_of_platformdirs(monkeypatch, tmp_path):
    for name, value in (("XDG_CONFIG_HOME", None), ("XDG_CONFIG_HOME", str(tmp_path))):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
        expected = os.path.join(platformdirs.user_config_dir("vcc", appauthor=False), "trust")
        assert str(user_trust_folder()) == expected
    assert TrustPlace.open().system == SYSTEM
    assert TrustPlace.open(tmp_path) == TrustPlace(tmp_path, SYSTEM, True)


def test_an_account_without_a_home_has_no_folder(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert not user_trust_folder({}).parent.exists()
    assert "~" not in str(user_trust_folder({}))
    assert TrustPlace(user_trust_folder({}), SYSTEM, False).read("a.json", Thing) == ()


def test_nothing_is_there_and_nothing_is_made_by_reading(place, tmp_path):
    assert place.read("a.json", Thing) == ()
    assert place.read_own("a.json", Thing) is None
    assert place.read_folder("keys", Thing) == ()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_the_users_first(place):
    place.write("a.json", Thing("user"))
    TrustPlace(place.system, place.system, True).write("a.json", Thing("system"))
    assert place.read("a.json", Thing) == (Thing("user"), Thing("system"))
    assert place.read_own("a.json", Thing) == Thing("user")
    place.write("a.json", Thing("again"))
    assert place.read_own("a.json", Thing) == Thing("again")
    assert place.remove("a.json")
    assert not place.remove("a.json")
    assert place.read("a.json", Thing) == (Thing("system"),)


def test_folders_and_files_are_private(place):
    place.write("keys/a.json", Thing("a"))
    assert [p.name for p in (place.user / "keys").iterdir()] == ["a.json"]
    assert (place.user / "keys").stat().st_mode & 0o777 == 0o700
    assert (place.user / "keys/a.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("part", ["", "keys", "keys/a.json"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_refused(place, part, mode):
    place.write("keys/a.json", Thing("a"))
    path = place.user / part
    path.chmod(path.stat().st_mode | mode)
    with pytest.raises(Unsafe):
        place.read_folder("keys", Thing)


def test_the_advice_is_about_the_trust_folder(place):
    place.write("a.json", Thing("a"))
    place.user.chmod(0o777)
    with pytest.raises(Unsafe) as caught:
        place.read("a.json", Thing)
    assert f"chmod o-w {place.user}, or set VCC_TRUST_DIR" in caught.value.hint


@pytest.mark.root
@pytest.mark.parametrize("part", ["", "keys", "keys/a.json"])
def test_what_another_account_owns_is_refused(place, as_root, part):
    place.write("keys/a.json", Thing("a"))
    os.chown(place.user / part, 65534, 65534)
    with pytest.raises(Foreign):
        place.read_folder("keys", Thing)


@pytest.mark.root
def test_a_default_folder_in_the_home_of_another_account_is_none(place, as_root):
    place.write("a.json", Thing("a"))
    os.chown(place.user, 65534, 65534)
    assert TrustPlace(place.user, place.system, False).read("a.json", Thing) == ()
    with pytest.raises(Foreign):  # the administrator's is never left out
        TrustPlace(place.system, place.user, False).read("a.json", Thing)


def test_a_folder_that_cannot_be_entered_is_trouble_only_where_it_was_named(open_tmp):
    def work():
        TrustPlace(open_tmp / "home/trust", open_tmp / "none", True).write("a.json", Thing("a"))
        (open_tmp / "home").chmod(0)
        closed = TrustPlace(open_tmp / "home/trust", open_tmp / "none", False)
        assert closed.read("a.json", Thing) == ()
        with pytest.raises(StorageError):
            TrustPlace(closed.user, closed.system, True).read("a.json", Thing)
        (open_tmp / "home").chmod(0o700)

    assert exit_of(child(work, uid=65534)) == 0


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder"])
def test_what_is_no_file_never_blocks_and_is_trouble(place, kind, tmp_path):
    place.write("b.json", Thing("b"))
    path = place.user / "a.json"
    {
        "symlink": lambda: path.symlink_to(tmp_path / "user/b.json"),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    with pytest.raises((StorageError, Unsafe)):
        place.read("a.json", Thing)


BAD = {
    "twice": b'{"name":"a","name":"b"}',
    "unknown": b'{"name":"a","other":1}',
    "missing": b"{}",
    "kind": b'{"name":1}',
    "text for a number": b'{"name":"a","count":"1"}',
    "true for a number": b'{"name":"a","count":true}',
    "NaN": b'{"name":"a","count":NaN}',
    "list": b"[]",
    "no JSON": b"name: a",
    "empty": b"",
    "no UTF-8": b'{"name":"\xff"}',
    "depth bomb": b"[" * 20000 + b"]" * 20000,
    "NUL": b'{"name":"\\u0000"}',
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_breaks_a_rule_names_itself(place, name):
    place.write("a.json", Thing("a"))
    (place.user / "a.json").write_bytes(BAD[name])
    with pytest.raises(FormatError, match=r"a\.json cannot be used"):
        place.read("a.json", Thing)


def test_a_huge_file_is_refused(place):
    place.write("a.json", Thing("a"))
    (place.user / "a.json").write_bytes(b" " * (MAX_TRUST_FILE + 1))
    with pytest.raises(FormatError, match="too large"):
        place.read("a.json", Thing)


def test_white_space_is_free_for_people():
    assert parse(json.dumps({"name": "a"}, indent=4).encode(), Thing, "it") == Thing("a")
