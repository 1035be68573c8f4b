"""Real file systems in trouble (rows 15 to 20, 29, 37, 38, 72), each in a child of its own."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.mounts import can_mount, in_own_mounts, mount
from support.stores import BASE, BLOBS, assert_intact, manifest_of, quiet

from vcc.cache.errors import StorageError
from vcc.cache.trouble import StorageFull

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def _mounts():
    why = can_mount()
    if why:
        pytest.skip(why)


def a_library() -> Path:
    """Some shared library of the system that needs nothing but libc."""
    name = ctypes.util.find_library("m")
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if name and name in line}
    return Path(min(paths)) if paths else Path(f"/lib/x86_64-linux-gnu/{name}")


@pytest.mark.parametrize(
    ("options", "blob"),
    [("size=512k,mode=700", bytes(1 << 20)), ("nr_inodes=60,mode=700", b"small")],
    ids=["no room", "no inodes"],
)
def test_a_full_file_system_stores_nothing_and_loses_nothing(tmp_path, options, blob):
    """Rows 17 and 19. Afterwards there is room, and the same store takes the artifact."""
    place = tmp_path / "mount"
    many = {f"constant/{n}": b"%d" % n + blob for n in range(40 if len(blob) < 10 else 1)}

    def work():
        mount(place, options)
        store = quiet(place / "store")
        old = store.publish(manifest_of("none", created=1), BLOBS)
        for _ in range(3):
            with pytest.raises(StorageFull) as caught:
                store.publish(manifest_of(), many)
            assert (caught.value.id, caught.value.exit) == ("STORAGE_FULL", 5)
            assert "VCC_CACHE_DIR" in caught.value.hint
        assert store.find(BASE) == (old,)
        assert_intact(store.root, old)
        assert list((store.root / "v1/tmp").iterdir()) == []
        mount(place, "remount,size=64m,nr_inodes=10k")
        assert_intact(store.root, store.publish(manifest_of(), many), many)

    assert in_own_mounts(work) == 0


def test_a_read_only_file_system_is_read_and_written_to_once(tmp_path, monkeypatch):
    """Row 20."""
    place = tmp_path / "mount"

    def work():
        mount(place, "size=8m,mode=700")
        store = quiet(place / "store")
        entry = store.publish(manifest_of(), BLOBS)
        mount(place, "remount,ro")
        assert store.find(BASE) == (entry,)
        assert store.load(entry).read_all() == dict(BLOBS)
        tried = []
        for name in ("mkdir", "open", "link", "rename", "unlink"):
            real = getattr(os, name)

            def counted(*rest, real=real, **more):
                try:
                    return real(*rest, **more)
                except OSError as error:
                    tried.append(error.errno)
                    raise

            monkeypatch.setattr(os, name, counted)
        with pytest.raises(StorageError, match="Read-only file system") as caught:
            store.publish(manifest_of("none"), {"program": b"other"})
        assert "VCC_CACHE_DIR" in caught.value.hint
        assert tried.count(30) == 1, tried  # EROFS
        store.quarantine(entry, "bad")
        assert store.find(BASE) == ()

    assert in_own_mounts(work) == 0


def test_a_noexec_file_system_serves_libraries(tmp_path):
    """Row 37: what is opened is a memory file."""
    place = tmp_path / "mount"
    library = a_library().read_bytes()

    def work():
        mount(place, "size=16m,mode=700,noexec")
        store = quiet(place / "store")
        entry = store.publish(manifest_of(), {"piece/0.so": library})
        (place / "lib.so").write_bytes(library)
        with pytest.raises(OSError, match="failed to map segment"):
            ctypes.CDLL(str(place / "lib.so"))
        with store.load(entry).expose(["piece/0.so"]) as paths:
            opened = ctypes.CDLL(str(paths["piece/0.so"]))
            opened.cos.restype, opened.cos.argtypes = ctypes.c_double, [ctypes.c_double]
            assert opened.cos(0.0) == 1.0

    assert in_own_mounts(work) == 0


def test_temporary_files_on_another_file_system_are_said(tmp_path):
    """Row 29: neither a link nor a rename can cross; nothing is copied in its place."""
    root = tmp_path / "store"

    def work():
        store = quiet(root)
        old = store.publish(manifest_of("none", created=1), BLOBS)
        mount(root / "v1/tmp", "size=8m,mode=700")
        with pytest.raises(StorageError) as caught:
            store.publish(manifest_of(), {"program": b"other"})
        assert "cross-device" in caught.value.why.lower()
        assert "v1/tmp" in caught.value.hint
        assert store.find(BASE) == (old,)
        assert_intact(root, old)

    assert in_own_mounts(work) == 0


SEALED = """
import ctypes, sys
from pathlib import Path
from support.stores import manifest_of
from vcc.cache.loaded import Loaded
Path("/proc/sys/vm/memfd_noexec").write_text(sys.argv[2])
blobs = {"piece/0.so": Path(sys.argv[1]).read_bytes()}
with Loaded.of(manifest_of(), blobs).expose(list(blobs)) as paths:
    ctypes.CDLL(str(paths["piece/0.so"]))
print(Path("/proc/sys/vm/memfd_noexec").read_text().strip())
"""


@pytest.mark.parametrize("level", ["1", "2"])
def test_a_system_without_executable_memory_files_opens_libraries(level):
    """Row 38: the memory file asks for no right to be executed, a library is only mapped.

    The setting belongs to the pid namespace, so that only the child has it.
    """
    if not Path("/proc/sys/vm/memfd_noexec").exists():
        pytest.skip("this kernel has no vm.memfd_noexec")
    words = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SEALED]
    done = subprocess.run(
        [*words, str(a_library()), level],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("this system does not let root have a pid namespace")
    assert (done.returncode, done.stdout.strip()) == (0, level), done.stderr


TWIN = """
import os, sys
from pathlib import Path
from support.stores import manifest_of, quiet
assert os.uname().nodename == "twin"
print(os.getpid(), flush=True)
for n in range(30):
    quiet(Path(sys.argv[1])).publish(manifest_of(f"m{n}", created=1), {"program": b"%d" % n})
"""


def test_two_containers_with_the_same_name_and_pid_share_a_store(tmp_path):
    """Row 72: what is temporary never collides."""
    script = f'hostname twin; exec {sys.executable} -c "$0" "$1"'
    words = ["unshare", "--pid", "--uts", "--fork", "sh", "-c", script, TWIN, str(tmp_path / "s")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert said[0][0] == said[1][0]  # the same pid
    store = quiet(tmp_path / "s")
    for n in range(30):
        (entry,) = store.find(BASE, {"mode": f"m{n}"})
        assert_intact(store.root, entry, {"program": b"%d" % n})
    assert list((tmp_path / "s/v1/tmp").iterdir()) == []


LARGE = """
import os, sys
from pathlib import Path
from support.stores import manifest_of, quiet
Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))
quiet(Path(sys.argv[1])).publish(manifest_of(), {"program": os.urandom(400 << 20)})
"""


def test_killed_for_its_memory_a_publisher_leaves_no_entry(tmp_path):
    """Row 15: the kernel ends the process while it makes what it wants to store."""
    group = Path("/sys/fs/cgroup/memory/vcc-test")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("120M")
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        root = tmp_path / "store"
        old = quiet(root).publish(manifest_of("none", created=1), BLOBS)
        done = subprocess.run(
            [sys.executable, "-c", LARGE, str(root), str(group)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == -9, done.stderr
        assert quiet(root).find(BASE) == (old,)
        assert_intact(root, old)
    finally:
        group.rmdir()


def test_the_helpers_of_these_tests_are_there():
    assert shutil.which("mount")
    assert shutil.which("unshare")
