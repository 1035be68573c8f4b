"""Many at once (rows 73, 78, 80): threads, started processes, readers beside a collection."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    child,
    exit_of,
    manifest_of,
    quiet,
    ref_path,
)

from vcc.cache.care.sweep import collect
from vcc.cache.damage import Damage
from vcc.cache.errors import MissingArtifact
from vcc.cache.roots import release
from vcc.cache.store import Store


def test_64_threads_load_one_artifact(root):
    """Row 78."""
    store = quiet(root)
    entry = store.publish(manifest_of(), BLOBS)
    loaded = store.load(entry)
    with ThreadPoolExecutor(64) as pool:
        together = list(pool.map(lambda _: loaded.read_all() == dict(BLOBS), range(256)))
        apart = list(pool.map(lambda _: quiet(root).load(entry).read_all(), range(64)))
    assert all(together)
    assert apart == [dict(BLOBS)] * 64
    assert loaded.verified.bytes == len(loaded.manifest.encode()) + 256 * entry.size


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_processes_load_what_their_parent_published(root, method):
    """Row 80."""
    entry = quiet(root).publish(manifest_of(), BLOBS)
    process = multiprocessing.get_context(method).Process(target=assert_intact, args=(root, entry))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def read_beside_collections(root: Path, loops: int) -> tuple[int, int]:
    """Read `loops` times while a child publishes, unlinks refs and collects; hits and misses."""
    entry = quiet(root).publish(manifest_of(), BLOBS)
    stop = root.with_name("stop")

    def churn():
        while not stop.exists():
            quiet(root).publish(manifest_of(), BLOBS)
            time.sleep(0.004)
            ref_path(root, entry).unlink()
            collect(root, grace_s=0)
        quiet(root).publish(manifest_of(), BLOBS)

    pid = child(churn)
    found = {"hit": 0, "miss": 0}
    damages: list[Damage] = []
    try:
        for _ in range(loops):
            found[outcome(Store(root, damages.append))] += 1
            release()  # else the collection would leave alone what this process reads
    finally:
        stop.touch()
        assert exit_of(pid) == 0
    assert damages == []
    assert_intact(root, entry)
    return found["hit"], found["miss"]


def outcome(store: Store) -> str:
    entries = store.find(BASE)
    try:
        loaded = store.load(*entries) if entries else None
        if loaded is not None and loaded.read_all() == dict(BLOBS):
            return "hit"
        assert loaded is None
    except MissingArtifact:
        pass
    return "miss"


def test_a_reader_beside_collections_sees_a_hit_or_a_miss(fast_tmp):
    """Row 73: the reader gives up what it holds each time, which makes the race hard."""
    hits, misses = read_beside_collections(fast_tmp / "store", 300)
    assert hits
    assert misses


@pytest.mark.slow
def test_10_000_reads_beside_collections_are_hits_or_misses(fast_tmp):
    hits, misses = read_beside_collections(fast_tmp / "store", 10_000)
    print(f"{hits} hits, {misses} misses")
    assert hits + misses == 10_000
    assert min(hits, misses) > 500


def test_two_collections_beside_publishers_lose_nothing_that_is_named(fast_tmp):
    """Rows 74 and 75: what was published stays, whoever collects meanwhile."""
    root = fast_tmp / "store"

    def publish(number):
        for n in range(15):
            entry = quiet(root).publish(manifest_of(f"m{number}-{n}", created=1), BLOBS)
            assert quiet(root).load(entry).read_all() == dict(BLOBS)

    def collecting():
        until = time.monotonic() + 2
        while time.monotonic() < until:
            collect(root, grace_s=0)

    quiet(root).publish(manifest_of(created=1), BLOBS)
    pids = [child(collecting), child(collecting)]
    pids += [child(lambda n=n: publish(n)) for n in range(2)]
    assert [exit_of(pid) for pid in pids] == [0] * 4
    assert len(quiet(root).find(BASE)) == 31
    for entry in quiet(root).find(BASE):
        assert_intact(root, entry)
    assert os.listdir(root / "v1/tmp") == []
