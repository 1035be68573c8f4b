"""Exposing verified bytes to `dlopen`: sealed memory files behind uniquely named symlinks.

`dlopen("/proc/self/fd/N")` itself is a trap: glibc knows libraries by name, and gives the earlier
one when the number N is reused. A symlink `<digest>.so` in a fresh private folder has a name that
never comes back. The folder is gone when the context ends; libraries opened by then stay.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from vcc.cache.digest import Digest
from vcc.cache.errors import DeviceError
from vcc.cache.folder import write_all
from vcc.cache.process import Process
from vcc.cache.trouble import storage

SEAL_PAUSES = (0.01, 0.05, 0.2, 0.5)
"""Seconds between attempts to seal a memory file that is busy."""

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# Not in the os module: the file is never executed as a program, only mapped. Linux >= 6.3.
_NOEXEC_SEAL = 0x0008
_HINT = (
    "Allow this process to map memory files executable: a security module denies it "
    "(SELinux: execmem), or a sandbox without memfd_create"
)


class ExecForbidden(DeviceError):
    """This system does not let a process map a memory file executable."""

    id = "EXEC_MEM"


@contextmanager
def exposed(
    digests: Mapping[str, Digest], data: Mapping[str, bytes | memoryview]
) -> Iterator[dict[str, Path]]:
    """Paths of sealed copies of `data`, by name.

    Args:
        digests: blob name to digest; the name's suffix (`.so`, `.json`) is kept.
        data: blob name to verified bytes.

    Raises:
        ExecForbidden: memory files cannot be made or mapped executable here.
        StorageError: no private folder could be made.
    """
    fds: list[int] = []
    with storage("make a private folder in", tempfile.gettempdir()):
        # Whose it is stands in its name, so that `vcc cache gc` knows what a killed process left.
        folder = Path(tempfile.mkdtemp(prefix=f"vcc-load-{Process.own()}."))
    try:
        paths = {name: folder / link for name, link in link_names(digests).items()}
        for name, path in paths.items():
            fds.append(sealed(path.name, data[name], executable=path.suffix == ".so"))
            os.symlink(f"/proc/self/fd/{fds[-1]}", path)
        yield paths
    finally:
        _remove(folder)
        for fd in fds:
            os.close(fd)


def link_names(digests: Mapping[str, Digest]) -> dict[str, str]:
    """The file name of each blob: `<digest of the group's library><suffix>`, unique per group.

    Blobs whose names differ only in the suffix are a group: AOTInductor looks for `<stem>.json`
    beside `<stem>.so`. Equal libraries of two groups get different names.
    """
    stems: dict[str, str] = {}
    for name in sorted(digests, key=lambda item: not item.endswith(".so")):
        group = str(PurePosixPath(name).with_suffix(""))
        stem = digests[name].hex
        if group not in stems and stem in stems.values():
            stem = f"{stem}-{len(stems)}"
        stems.setdefault(group, stem)
    return {
        name: stems[str(PurePosixPath(name).with_suffix(""))] + PurePosixPath(name).suffix
        for name in digests
    }


def sealed(name: str, data: bytes | memoryview, *, executable: bool) -> int:
    """The descriptor of a memory file with these bytes that can never change again.

    Raises:
        ExecForbidden: it cannot be made, or `executable` and it cannot be mapped so.
    """
    try:
        fd = _memory_file(name)
    except (OSError, AttributeError) as error:
        raise ExecForbidden("a memory file could not be made", str(error), _HINT) from error
    try:
        with storage("fill the memory file", name):
            write_all(fd, data)
            _seal(fd)
        if executable and data:
            _check_executable(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _seal(fd: int) -> None:
    # Pages that the kernel itself holds for a moment count as written to.
    for pause in (*SEAL_PAUSES, None):
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            return
        except OSError as error:
            if error.errno != errno.EBUSY or pause is None:
                raise
            time.sleep(pause)


def _memory_file(name: str) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel before 6.3 does not know the flag
            raise
        return os.memfd_create(name, flags)


def _check_executable(fd: int) -> None:
    try:
        mapped = mmap.mmap(fd, 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    except OSError as error:
        raise ExecForbidden(
            "compiled code cannot be loaded on this system", error.strerror or str(error), _HINT
        ) from error
    mapped.close()


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for item in os.listdir(folder):
            os.unlink(folder / item)
        os.rmdir(folder)
