"""Exposed libraries: sealed bytes, names that never repeat, nothing left behind."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import subprocess

import pytest
from support.stores import manifest_of

from vcc.cache.digest import Digest
from vcc.cache.errors import Exit, StorageError
from vcc.cache.expose import ExecForbidden, exposed, link_names, sealed
from vcc.cache.loaded import Loaded
from vcc.cache.store import Store

MARK = b"@@@@@@@@answer00"
SOURCE = f"""
static const volatile char mark[] = "{MARK.decode()}";
int answer(void) {{ return (mark[14] - '0') * 10 + (mark[15] - '0'); }}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The bytes of a tiny shared library; `variant` changes what it answers."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a shared library with")
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.c").write_text(SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", "a.so", "a.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return (folder / "a.so").read_bytes()


def variant(library: bytes, number: int) -> bytes:
    assert library.count(MARK) == 1
    return library.replace(MARK, MARK[:-2] + b"%02d" % number)


def test_50_libraries_in_a_row_answer_with_their_own_digest(library, tmp_path):
    blobs = {f"piece/{n}.so": variant(library, n) for n in range(50)}
    store = Store.open(tmp_path / "store")
    loaded = store.load(store.publish(manifest_of(), blobs))
    names = set()
    for number, (name, data) in enumerate(blobs.items()):
        with loaded.expose([name]) as paths:
            names.add(paths[name])
            assert paths[name].name == f"{Digest.of(data)}.so"
            opened = ctypes.CDLL(str(paths[name]))
        assert opened.answer() == number
    assert len(names) == 50


def test_libraries_exposed_together_answer_each_for_itself(library):
    blobs = {f"piece/{n}.so": variant(library, n) for n in (3, 14, 15)}
    with Loaded.of(manifest_of(), blobs).expose(list(blobs)) as paths:
        opened = [ctypes.CDLL(str(path)).answer() for path in paths.values()]
    assert opened == [3, 14, 15]


def test_the_table_of_a_library_lies_beside_it():
    blobs = {"piece/1.so": b"so", "piece/1.json": b"{}", "piece/2.so": b"other"}
    with Loaded.of(manifest_of(), blobs).expose(list(blobs)) as paths:
        assert paths["piece/1.json"] == paths["piece/1.so"].with_suffix(".json")
        assert {name: path.read_bytes() for name, path in paths.items()} == blobs
        assert paths["piece/1.so"].parent.stat().st_mode & 0o777 == 0o700


def test_equal_libraries_with_other_tables_do_not_share_a_name():
    digests = {
        "piece/1.so": Digest.of(b"so"),
        "piece/1.json": Digest.of(b"1"),
        "piece/2.so": Digest.of(b"so"),
        "piece/2.json": Digest.of(b"2"),
    }
    names = link_names(digests)
    assert len(set(names.values())) == 4
    for group in ("piece/1", "piece/2"):
        assert names[f"{group}.so"][:-3] == names[f"{group}.json"][:-5]


def test_folder_links_and_descriptors_are_gone_afterwards():
    before = len(os.listdir("/proc/self/fd"))
    loaded = Loaded.of(manifest_of(), {"piece/1.so": b"x"})
    with loaded.expose(["piece/1.so"]) as paths:
        folder = paths["piece/1.so"].parent
    assert not folder.exists()
    context = loaded.expose(["piece/1.so"])
    folder = context.__enter__()["piece/1.so"].parent
    assert folder.exists()
    assert not context.__exit__(RuntimeError, RuntimeError("inside"), None)
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_sealed_bytes_cannot_change():
    fd = sealed("x.so", b"bytes", executable=True)
    try:
        for change in (
            lambda: os.pwrite(fd, b"B", 0),
            lambda: os.ftruncate(fd, 1),
            lambda: os.ftruncate(fd, 100),
            lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0),
            lambda: mmap.mmap(fd, 5, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE),
        ):
            with pytest.raises(PermissionError):
                change()
        assert os.pread(fd, 10, 0) == b"bytes"
    finally:
        os.close(fd)


def refuse(code):
    def call(*args, **options):
        raise OSError(code, os.strerror(code))

    return call


def expose_one():
    with exposed({"piece/1.so": Digest.of(b"x")}, {"piece/1.so": b"x"}):
        pass


@pytest.mark.parametrize("times", [2, 9])
def test_a_memory_file_that_the_kernel_holds_is_sealed_in_a_moment(monkeypatch, times):
    """Under load the kernel may hold a page that was just written: EBUSY."""
    real, asked = fcntl.fcntl, []

    def busy(fd: int, what: int, value: int = 0) -> int:
        asked.append(what)
        if asked.count(fcntl.F_ADD_SEALS) <= times:
            raise OSError(errno.EBUSY, "busy")
        return real(fd, what, value)

    monkeypatch.setattr("vcc.cache.expose.fcntl.fcntl", busy)
    monkeypatch.setattr("vcc.cache.expose.SEAL_PAUSES", (0.0,) * 4)
    if times > 4:
        with pytest.raises(StorageError, match="busy"):
            sealed("x.so", b"bytes", executable=False)
        return
    fd = sealed("x.so", b"bytes", executable=False)
    assert real(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
    os.close(fd)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_forbidden_execution_is_an_error_with_advice(monkeypatch, code, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(mmap, "mmap", refuse(code))
    with pytest.raises(ExecForbidden) as caught:
        expose_one()
    assert (caught.value.id, caught.value.exit) == ("EXEC_MEM", Exit.DEVICE)
    assert "SELinux" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_no_memory_files_is_an_error_with_advice(monkeypatch):
    monkeypatch.setattr(os, "memfd_create", refuse(errno.ENOSYS))
    with pytest.raises(ExecForbidden, match="memory file"):
        expose_one()


def test_a_kernel_that_does_not_know_the_noexec_flag_works(monkeypatch):
    real = os.memfd_create

    def old(name, flags):
        if flags & 8:
            raise OSError(errno.EINVAL, "unknown flag")
        return real(name, flags)

    monkeypatch.setattr(os, "memfd_create", old)
    expose_one()


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare to set vm.memfd_noexec for a process tree",
)
def test_the_strictest_memfd_policy_still_loads(library, tmp_path):
    """Row 38: vm.memfd_noexec=2 refuses executable memory files, not executable mappings."""
    if not os.path.exists("/proc/sys/vm/memfd_noexec"):
        pytest.skip("this kernel has no vm.memfd_noexec")
    import sys

    (tmp_path / "a.so").write_bytes(variant(library, 42))
    program = (
        "import ctypes, pathlib\n"
        "from vcc.cache.digest import Digest\n"
        "from vcc.cache.expose import exposed\n"
        f"data = pathlib.Path({str(tmp_path / 'a.so')!r}).read_bytes()\n"
        "with exposed({'a.so': Digest.of(data)}, {'a.so': data}) as paths:\n"
        "    print(ctypes.CDLL(str(paths['a.so'])).answer())\n"
    )
    shell = 'echo 2 > /proc/sys/vm/memfd_noexec && "$0" -c "$1"'
    command = ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", shell, sys.executable, program]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "42", done.stderr
