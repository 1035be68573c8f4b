"""Odd things in the folders of a store: nothing that is named goes, and they stop nobody."""

from __future__ import annotations

import os

import pytest
from support.stores import assert_intact, blob_path, quiet

from vcc.cache.care.check import check
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.digest import Digest

STRAY = Digest.of(b"stray")


def kinds(done):
    return {kind: count for kind, (count, _) in done.counts().items()}


@pytest.mark.parametrize("kind", ["file", "link"])
@pytest.mark.parametrize("place", ["refs", "gemm"])
def test_nothing_is_collected_where_what_names_blobs_cannot_be_listed(root, two, place, kind):
    """Such as a folder that somebody moved to another disk."""
    folder, moved = root / "v1" / place, root / "moved"
    folder.mkdir(exist_ok=True)
    folder.rename(moved)
    folder.symlink_to(moved) if kind == "link" else folder.touch()
    done = collect(root, grace_s=0)
    assert "unreferenced blobs stay" in done.notes[0]
    assert "unreferenced blobs" not in kinds(done)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/", path)])
def test_what_is_no_file_goes_from_the_content_like_any_other(root, two, make):
    path = blob_path(root, STRAY)
    path.parent.mkdir(exist_ok=True)
    make(path)
    assert kinds(collect(root, grace_s=0)) == {"unreferenced blobs": 1}
    assert not os.path.lexists(path)
    assert os.path.isdir("/")
    assert os.listdir(root / "v1/tmp") == []
    assert_intact(root, two[0])


@pytest.mark.parametrize("place", ["refs", "signatures"])
def test_a_file_in_place_of_a_folder_is_told_and_set_aside(root, two, place):
    path = root / "v1" / place / ("a" * 64)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert [one.place for one in check(root).findings] == [(place, "a" * 64)]
    assert len(list(quiet(root).entries())) == 2
    assert repair(root).aside == [(place, "a" * 64)]
    assert check(root).findings == []


def test_an_odd_folder_of_those_at_work_makes_no_build_of_ours_a_strangers(root, two):
    tmp = root / "v1/tmp"
    tmp.rmdir()
    for make in (tmp.touch, lambda: tmp.symlink_to("/")):
        make()
        assert quiet(root).load(two[0]).trust.startswith("written by ")
        tmp.unlink()
