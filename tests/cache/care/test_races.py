"""Collections beside those who bring artifacts: in any order of steps, what has a ref is whole."""

from __future__ import annotations

import io
import os
import random
import time

from support.stores import BASE, BLOBS, assert_intact, child, exit_of, manifest_of, quiet, ref_path

from vcc.cache.care.check import check
from vcc.cache.care.prune import items_of
from vcc.cache.care.remove import remove
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.pack import unpack as unpacking
from vcc.cache.pack.read import PackReader
from vcc.cache.pack.write import content_of, write_pack
from vcc.cache.remote import pull as pulling
from vcc.cache.remote.offers import offers
from vcc.cache.remote.open import open_remote
from vcc.cache.remote.patience import BY_HAND, Patience
from vcc.cache.remote.push import Push, push_stored
from vcc.cache.roots import release

SECONDS = 4.0


def all_blobs_go(root) -> None:
    for path in (root / "v1/cas").rglob("*"):
        if path.is_file():
            path.unlink()


def collected_before(monkeypatch, module, root):
    """The ref of a publisher appears only after a collection has taken all of its content."""
    real = module.publish_ref

    def late(store, own, entry):
        all_blobs_go(root)
        real(store, own, entry)

    monkeypatch.setattr(module, "publish_ref", late)


def remote_with_one(folder):
    remote = open_remote((folder / "remote").as_uri())
    entry = quiet(folder / "other").publish(manifest_of(), BLOBS)
    push_stored(Push(remote, Patience(BY_HAND)), quiet(folder / "other"), entry)
    return remote, entry


def pull_all(root, remote) -> None:
    patience = Patience(BY_HAND)
    for entry in offers(remote, patience, BASE.digest.hex).entries:
        pulling.pull(root, remote, entry, quiet(root).gate, patience, by_hand=True)


def test_a_pull_whose_blobs_were_taken_before_its_ref_brings_them_again(fast_tmp, monkeypatch):
    remote, entry = remote_with_one(fast_tmp)
    root = fast_tmp / "store"
    collected_before(monkeypatch, pulling, root)
    pull_all(root, remote)
    assert_intact(root, entry)


def test_an_import_whose_blobs_were_taken_before_its_ref_names_them_again(fast_tmp, monkeypatch):
    entry = quiet(fast_tmp / "other").publish(manifest_of(), BLOBS)
    stream = io.BytesIO()
    write_pack(content_of(quiet(fast_tmp / "other"), [entry]), stream.write)
    stream.seek(0)
    root = fast_tmp / "store"
    collected_before(monkeypatch, unpacking, root)
    unpacking.unpack(root, PackReader.open(stream), quiet(root).gate)
    assert_intact(root, entry)


def no_damage(root) -> None:
    assert [(one.place, one.reason) for one in check(root).findings] == []


def test_whoever_brings_removes_collects_and_repairs_at_once_what_has_a_ref_is_whole(fast_tmp):
    remote, pulled = remote_with_one(fast_tmp)
    root, until = fast_tmp / "store", time.monotonic() + SECONDS

    def again(work):
        def loop():
            random.seed(os.getpid())
            while time.monotonic() < until:
                work()
                release()  # as a process that ends: else nothing that was read could go

        return child(loop)

    def publish():
        entry = quiet(root).publish(manifest_of(f"m{random.randrange(4)}", created=1), BLOBS)
        assert entry.artifact

    def take():
        items = list(items_of(root).items)
        remove(root, random.sample(items, min(2, len(items))))

    def damage_is_none():
        assert repair(root).aside == []  # whatever is missing is in the hands of somebody

    pids = [again(publish), again(publish), again(lambda: pull_all(root, remote)), again(take)]
    pids += [again(lambda: collect(root, grace_s=0)), again(lambda: collect(root, grace_s=0))]
    pids += [again(damage_is_none), again(lambda: no_damage(root))]
    assert [exit_of(pid) for pid in pids] == [0] * len(pids)
    pull_all(root, remote)
    assert ref_path(root, pulled).exists()
    assert check(root).findings == []
    for entry in quiet(root).find(BASE):
        assert_intact(root, entry)
    assert os.listdir(root / "v1/tmp") == []
