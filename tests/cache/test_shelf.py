"""Shelves: indexes beside each other, blobs verified, damage set aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vcc.cache import publish as publishing
from vcc.cache.blob import Damaged
from vcc.cache.canonical import FormatError
from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact
from vcc.cache.shelf import Shelf


def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "cache", ("gemm", "a" * 64))


def place(one: Shelf) -> Path:
    return one.root / "v1" / "gemm" / ("a" * 64)


def blob(data: bytes) -> tuple[str, bytes]:
    return Digest.of(data).hex, data


def test_a_store_that_is_not_there_has_nothing_and_is_not_made(tmp_path: Path) -> None:
    assert shelf(tmp_path).indexes() == ()
    assert not (tmp_path / "cache").exists()
    with pytest.raises(MissingArtifact):
        shelf(tmp_path).read("b" * 64, 1)


def test_what_is_published_comes_back(tmp_path: Path) -> None:
    digest, data = blob(b"nodes")
    name = shelf(tmp_path).publish({"kind": "x", "blob": digest}, {digest: data})
    assert [dict(index) for index in shelf(tmp_path).indexes()] == [{"kind": "x", "blob": digest}]
    assert shelf(tmp_path).read(digest, len(data)) == data
    assert (place(shelf(tmp_path)) / name).stat().st_mode & 0o777 == 0o600


def test_indexes_lie_beside_each_other_and_the_same_one_is_there_once(tmp_path: Path) -> None:
    for number in (1, 2, 1):
        shelf(tmp_path).publish({"number": number}, {})
    assert sorted(index["number"] for index in shelf(tmp_path).indexes()) == [1, 2]


def test_a_damaged_index_is_set_aside_and_the_others_stay(tmp_path: Path) -> None:
    bad = shelf(tmp_path).publish({"number": 1}, {})
    shelf(tmp_path).publish({"number": 2}, {})
    path = place(shelf(tmp_path)) / bad
    path.write_bytes(path.read_bytes().replace(b"1", b"7"))
    assert [index["number"] for index in shelf(tmp_path).indexes()] == [2]
    assert not path.exists()
    shelf(tmp_path).publish({"number": 1}, {})
    assert len(shelf(tmp_path).indexes()) == 2


def test_what_is_no_file_of_ours_is_set_aside(tmp_path: Path) -> None:
    shelf(tmp_path).publish({"number": 2}, {})
    for digit, plant in (("1", lambda at: at.symlink_to("/dev/zero")), ("2", Path.mkdir)):
        planted = place(shelf(tmp_path)) / (digit * 64)
        plant(planted)
        assert [index["number"] for index in shelf(tmp_path).indexes()] == [2]
        assert not planted.is_symlink()
        assert not planted.exists()


def test_a_file_where_a_shelf_belongs_is_a_shelf_without_indexes(tmp_path: Path) -> None:
    shelf(tmp_path).publish({"number": 2}, {})
    planted = place(shelf(tmp_path)).with_name("b" * 64)
    planted.write_bytes(b"")
    assert Shelf(tmp_path / "cache", ("gemm", "b" * 64)).indexes() == ()
    assert Shelf(tmp_path / "cache", ("gemm", "b" * 64, "c" * 64)).shelves() == ()


def test_a_damaged_blob_is_not_handed_out(tmp_path: Path) -> None:
    digest, data = blob(b"nodes")
    shelf(tmp_path).publish({"blob": digest}, {digest: data})
    path = tmp_path / "cache" / "v1" / "cas" / "sha256" / digest[:2] / digest
    path.write_bytes(b"n0des")
    with pytest.raises(Damaged):
        shelf(tmp_path).read(digest, len(data))


def test_an_index_without_canonical_text_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        shelf(tmp_path).publish({"number": 1 << 60}, {})
    assert shelf(tmp_path).indexes() == ()


def test_foreign_files_on_a_shelf_are_no_indexes(tmp_path: Path) -> None:
    shelf(tmp_path).publish({"number": 1}, {})
    (place(shelf(tmp_path)) / "notes.txt").write_text("hello")
    assert len(shelf(tmp_path).indexes()) == 1


def test_an_index_that_others_could_have_written_is_passed_over_and_left(tmp_path: Path) -> None:
    """It bears no signature, and what it names is code."""
    path = place(shelf(tmp_path)) / shelf(tmp_path).publish({"n": 1}, {})
    path.chmod(0o660)
    assert shelf(tmp_path).indexes() == ()
    assert path.exists()


@pytest.mark.root
def test_an_index_of_another_account_in_a_shared_store_is_passed_over(
    tmp_path: Path, as_root: None
) -> None:
    one = shelf(tmp_path)
    name = one.publish({"n": 1}, {})
    os.chown(place(one) / name, 65534, 65534)
    one.root.chmod(0o770)
    assert one.indexes() == ()
    assert (place(one) / name).exists()
    assert one.publish({"n": 1}, {}) == name
    assert [dict(index) for index in one.indexes()] == [{"n": 1}]


def test_blobs_that_a_collection_took_before_the_index_was_there_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, real = Shelf(tmp_path, ("gemm", "a" * 64)), publishing.add_file

    def taken_first(store, own, to, name, data, check):  # type: ignore[no-untyped-def]
        if to.path.endswith("a" * 64):
            for path in (tmp_path / "v1/cas").rglob("*"):
                if path.is_file():
                    path.unlink()
        real(store, own, to, name, data, check)

    monkeypatch.setattr(publishing, "add_file", taken_first)
    digest = Digest.of(b"tables").hex
    shelf.publish({"kind": "x"}, {digest: b"tables"})
    assert shelf.read(digest, 6) == b"tables"
