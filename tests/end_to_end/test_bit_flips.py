"""Rows 41 to 45 on a real artifact: every change of stored bytes is seen before they are used.

The same on an artifact for a GPU is in `tests/engine/graphs/planner/test_demo.py`; that a run after
damage gives the same tokens, in `test_bad_store.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.flips import flip_at_random, flip_headers, other_damage, targets
from support.flow import ask, built
from support.stores import quiet

from vcc.cache.store import Store

KINDS = {"ref", "manifest", "program", "library", "constant", "golden"}


@pytest.fixture
def found(demo_shelf: Path, fast_tmp: Path):
    """The files of the demo, in a store of its own; compares XXH3-128 or SHA-256."""
    loaded = built(ask("demo"), Store.open(demo_shelf)).loaded
    entry = quiet(fast_tmp / "store").publish(loaded.manifest, loaded.read_all())
    return lambda full: targets(fast_tmp / "store", entry, full=full)


@pytest.mark.parametrize("full", [False, True], ids=["xxh3", "sha256"])
def test_a_thousand_random_bits_of_each_kind_are_all_seen(found, full):
    done = flip_at_random(found(full), 1000, seed=20261130)
    assert done == dict.fromkeys(KINDS, 1000)


def test_a_bit_in_every_byte_of_every_header_is_seen(found):
    done = flip_headers(found(False))
    assert done.keys() == KINDS - {"constant"}
    assert done["ref"] + done["manifest"] > 10_000
    print(dict(done))


@pytest.mark.slow
def test_a_bit_in_every_byte_of_every_header_is_seen_by_sha256_too(found):
    print(dict(flip_headers(found(True))))


@pytest.mark.parametrize("full", [False, True], ids=["xxh3", "sha256"])
def test_files_cut_lengthened_zeroed_and_swapped_are_all_seen(found, full):
    done = other_damage(found(full))
    assert done.keys() == {"cut", "lengthened", "zeroed block", "swapped"}
    assert done["zeroed block"] > 100
