"""A disk that is full in the middle of a pull: nothing is left, nothing earlier is touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.remotes import pull_one, push_all, visible
from support.stores import BLOBS, assert_intact, manifest_of

from vcc.cache.errors import StorageError
from vcc.cache.store import Store

SIZE = 1 << 20


@pytest.fixture
def small(tmp_path):
    """A folder on a disk of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "vcc-test", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
def test_a_full_disk_leaves_no_temporary_files_and_earlier_artifacts(source, small, tmp_path):
    url = f"file://{tmp_path}/r"
    earlier = next(source.entries())
    large = source.publish(manifest_of("none"), {**BLOBS, "constant/big": os.urandom(2 * SIZE)})
    push_all(source, url)
    target = Store.open(small / "store")
    pull_one(target, url, earlier)
    before = used(small)
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            pull_one(target, url, large)
        assert "No space left" in str(caught.value)
        assert visible(target) == [earlier.artifact]
    assert used(small) - before < 64 << 10
    assert_intact(target.root, earlier)


def used(place: Path) -> int:
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
