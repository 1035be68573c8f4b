"""A guest's caches go round: made, stored, verified, put back, used; trouble never stops a run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.guests import folders, identity, ran
from support.trusting import MAIN, Site

from vcc.cache.errors import MissingArtifact, StorageError
from vcc.cache.gate import Untrusted
from vcc.cache.pulled import Mark, write_mark
from vcc.cache.remote.open import open_remote
from vcc.cache.remote.patience import BY_HAND, Patience
from vcc.cache.remote.push import Push, push_stored
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.store import Store
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.secretkey import SecretKey
from vcc.engine.guest.save import Bounds

MAKE = """
make(graph("aaaa")); kernel("K1"); make(inductor / "ab" / "cab.py")
"""
READ = """
graph("aaaa").read_bytes()
found = json.loads((triton / "K1" / "__grp__k.json").read_text())["child_paths"]
assert pathlib.Path(found["k.cubin"]).read_bytes() == b"cubin of K1", found
assert pathlib.Path(found["k.cubin"]).parent == triton / "K1"
"""


def kinds(report, column: str) -> dict[str, object]:
    return {str(row["kind"]): row[column] for row in report.kinds() if row[column]}


def test_what_one_run_made_the_next_one_uses_in_another_folder(store):
    cold = ran(store, MAKE)
    assert (cold.code, cold.restored.entry, len(cold.saved.made)) == (0, None, 4)
    assert "no caches of any program" in cold.restored.why
    warm = ran(store, READ)
    assert warm.code == 0
    assert warm.restored.entry == cold.saved.entry
    assert kinds(warm, "restored") == {
        "FX graphs": 1,
        "Triton kernels": 1,
        "sources and the rest": 2,
    }
    assert kinds(warm, "used") == {
        "FX graphs": 1,
        "Triton kernels": 1,
        "sources and the rest": 1,
    }
    assert kinds(warm, "made") == {}
    assert (warm.saved.entry, warm.saved.why) == (None, "nothing new was made")
    assert folders() == []


def test_what_is_compiled_anyway_is_counted_and_stored_with_the_rest(store):
    ran(store, MAKE)
    more = ran(store, 'make(graph("bbbb")); kernel("K2")')
    assert kinds(more, "made") == {"FX graphs": 1, "Triton kernels": 1, "sources and the rest": 1}
    assert more.saved.entry is not None
    third = ran(store, READ + 'graph("bbbb").read_bytes()')
    assert len(third.restored.files) == 7
    assert kinds(third, "used")["FX graphs"] == 2


def test_a_file_that_is_written_anew_is_made(store):
    ran(store, MAKE)
    again = ran(store, 'make(graph("aaaa"), b"other")')
    assert kinds(again, "made") == {"FX graphs": 1}
    assert ran(store, 'assert graph("aaaa").read_bytes() == b"other"').code == 0


def test_names_and_machines_are_apart_and_the_same_script_comes_first(store):
    one = ran(store, 'make(graph("aaaa"))', identity=identity(script="1" * 64)).saved.entry
    two = ran(store, 'make(graph("bbbb"))', identity=identity(script="2" * 64), fresh=True)
    assert one is not None
    assert ran(store, "", identity=identity(script="1" * 64)).restored.entry == one
    assert ran(store, "", identity=identity(script="2" * 64)).restored.entry == two.saved.entry
    assert ran(store, "", identity=identity(script="3" * 64)).restored.entry is not None
    assert ran(store, "", identity=identity("other")).restored.entry is None
    other_cpu = ran(store, "", identity=identity(**{"host.cpu": "x86-64-v4 1"}))
    assert other_cpu.restored.entry is None
    assert "host.cpu: found 'x86-64-v3 0', wanted 'x86-64-v4 1'" in other_cpu.restored.why


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("sys.exit(7)", 7),
        ("os.kill(os.getpid(), 15)", 143),
        ("os._exit(255)", 255),
        ("raise KeyError", 1),
    ],
)
def test_the_exit_code_is_passed_on_and_caches_are_kept(store, code, exit_code):
    done = ran(store, f"{MAKE}\n{code}")
    assert done.code == exit_code
    assert done.saved.entry is not None


@pytest.mark.parametrize("number", [6, 9, 11])
def test_a_crash_stores_nothing(store, number):
    done = ran(store, f"{MAKE}\nos.kill(os.getpid(), {number})")
    assert done.code == 128 + number
    assert done.saved.entry is None
    assert f"signal {number}" in done.saved.why
    assert list(store.entries()) == []


def test_bounds(store):
    large = ran(store, 'make(graph("aaaa"), b"x" * 1000)', bounds=Bounds(999))
    assert large.saved.entry is None
    assert "--max-size" in large.saved.why
    assert ran(store, MAKE, bounds=Bounds(1 << 20, save=False)).saved.why == "--no-save"
    assert list(store.entries()) == []


def test_fresh_forgets_what_is_stored(store):
    ran(store, MAKE)
    done = ran(store, 'assert not graph("aaaa").exists(); make(graph("bbbb"))', fresh=True)
    assert done.code == 0
    assert ran(store, "").restored.files.keys() == {"inductor/fxgraph/bb/bbbb/code"}


def test_require_warm_does_not_start_a_cold_program(store, tmp_path):
    with pytest.raises(MissingArtifact, match="no caches of test"):
        ran(store, f"make(pathlib.Path({str(tmp_path / 'ran')!r}))", require_warm=True)
    assert not (tmp_path / "ran").exists()
    ran(store, MAKE)
    assert ran(store, READ, require_warm=True).code == 0


def damage(store: Store) -> None:
    (entry,) = store.entries()
    for file in (store.root / "v1/cas").rglob("*"):
        if file.is_file() and file.name != entry.artifact:
            file.chmod(0o600)
            file.write_bytes(b"x" * file.stat().st_size)


def test_damage_is_told_quarantined_and_costs_a_cold_run(store):
    ran(store, MAKE)
    damage(store)
    told: list[str] = []
    done = ran(store, 'assert not graph("aaaa").exists()\n' + MAKE, told=told.append)
    assert done.code == 0
    (line,) = (one for one in told if done.restored.misses[0][0][:12] in one)
    assert "is damaged and was set aside" in line
    assert "damaged" in done.restored.misses[0][1]
    assert done.saved.entry is not None
    assert len(list(store.entries())) == 1
    assert ran(store, READ).restored.entry == done.saved.entry


def test_a_store_that_cannot_be_used_costs_the_caches_and_not_the_run(store, tmp_path):
    (tmp_path / "store").write_text("a file")
    told: list[str] = []
    done = ran(store, MAKE, told=told.append)
    assert done.code == 0
    assert done.saved.entry is None
    assert "store" in told[0] + done.saved.why
    with pytest.raises(StorageError):
        ran(replace(store, strict=True), MAKE)


def test_without_a_temporary_folder_the_program_runs_plainly(store, tmp_path):
    shutil.rmtree(tmp_path / "tmp")
    told: list[str] = []
    code = "import os, sys; sys.exit('TRITON_CACHE_DIR' in os.environ)"
    from vcc.engine.guest.command import read_command
    from vcc.engine.guest.run import Guest, run_guest

    command = read_command(["python3", "-c", code])
    plain = Guest(command, identity(), store, Bounds(1), told=told.append)
    assert run_guest(plain).code == 0
    assert "without its caches" in told[0]
    with pytest.raises(StorageError):
        run_guest(replace(plain, store=replace(store, strict=True)))


def test_a_users_own_places_are_replaced_and_told(store, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    told: list[str] = []
    ran(store, "assert str(triton) != '/elsewhere'", told=told.append)
    assert told == ["TRITON_CACHE_DIR set to a private folder of this run"]


def pulled(store: Store, by_hand: bool) -> None:
    (entry,) = store.entries()
    mark = Mark(url="s3://bucket/team", when=1, by_hand=by_hand)
    with opened(store.root, create=True) as folder, folder.below("tmp", create=True) as own:
        write_mark(folder, own, entry.artifact, mark)


@pytest.mark.parametrize("by_hand", [True, False])
def test_caches_from_a_remote_need_a_signature(store, tmp_path, by_hand):
    """They are pickles: not even who pulled them by hand, or trusts the remote, gets them."""
    ran(store, MAKE)
    pulled(store, by_hand)
    refused = ran(store, 'assert not graph("aaaa").exists()')
    assert refused.code == 0
    assert "holds pickles" in refused.restored.misses[0][1]
    (entry,) = store.entries()  # it is no damage
    key = SecretKey.new()
    site = Site(store.root, TrustPlace.open(tmp_path / "trust"), entry)
    site.trust(key)
    site.sign(key)
    signed = ran(store, READ)
    assert (signed.code, signed.restored.trust) == (0, f"signed by main for {MAIN.builder}")


def test_prod_fails_closed(store, monkeypatch, tmp_path):
    ran(store, MAKE)
    monkeypatch.setenv("VCC_POLICY", "prod")
    with pytest.raises(Untrusted):
        ran(Store.open(store.root), f"make(pathlib.Path({str(tmp_path / 'ran')!r}))")
    assert not (tmp_path / "ran").exists()


def test_lower_tiers_are_read_and_not_written(store, tmp_path):
    ran(store, MAKE)
    upper = replace(Store.open(tmp_path / "upper"), lower=(store.root,))
    warm = ran(upper, READ + 'make(graph("bbbb"))')
    assert (warm.code, warm.restored.tier) == (0, "lower 1")
    assert len(list(store.entries())) == 1
    assert len(list(Store.open(tmp_path / "upper").entries())) == 1


def test_the_report_has_what_was_restored_made_and_saved(store):
    found = ran(store, MAKE).as_dict()
    assert (found["report"], found["version"], found["exit"]) == ("vcc guest", 1, 0)
    made = {Path(str(one["path"])).name for one in found["made"]}
    assert made == {"code", "k.cubin", "__grp__k.json", "cab.py"}
    assert found["saved"]["artifact"]
    assert set(found["seconds"]) == {"restore", "run", "save"}
    assert "argv" not in str(found)


def test_passing_files_are_not_stored(store):
    passing = """
make(inductor / "locks" / "a.lock"); make(triton / "K" / "tmp.pid_1_x" / "k"); make(inductor / "x~")
make(inductor / "ab" / "half.so", b"\\x7fELF" + b"\\2" + bytes(60))
os.symlink("/etc/passwd", inductor / "link"); os.mkfifo(inductor / "pipe")
make(graph("aaaa"))
"""
    done = ran(store, passing)
    assert done.code == 0
    assert done.saved.left_out == 1  # the library whose linker did not finish
    assert list(ran(store, "").restored.files) == ["inductor/fxgraph/aa/aaaa/code"]


def test_signed_caches_come_from_a_remote_and_unsigned_ones_do_not(store, tmp_path, monkeypatch):
    ran(store, MAKE)
    (entry,) = store.entries()
    push(store, entry, f"file://{tmp_path / 'remote'}")
    monkeypatch.setenv("VCC_REMOTE", f"file://{tmp_path / 'remote'}")
    told: list[str] = []
    unsigned = ran(Store.open(tmp_path / "first"), 'assert not graph("aaaa").exists()')
    assert (unsigned.code, unsigned.restored.entry) == (0, None)
    key = SecretKey.new()
    site = Site(store.root, TrustPlace.open(tmp_path / "trust"), entry)
    site.trust(key)
    site.sign(key)
    push(store, entry, f"file://{tmp_path / 'remote'}")
    signed = ran(Store.open(tmp_path / "second"), READ, told=told.append)
    assert (signed.code, signed.restored.entry) == (0, entry)
    assert signed.restored.trust.startswith("signed by main")


def push(store: Store, entry: Entry, url: str) -> None:
    remote = open_remote(url)
    push_stored(Push(remote, Patience(BY_HAND)), store, entry)
    remote.close()
