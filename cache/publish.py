"""Publishing: content first, the ref last, every file complete and durable before it has a name.

own folder tmp/<host.boot.process.random>/ -> write, sync -> hard link into cas (never replacing)
-> sync cas -> the same for the manifest -> the same for the ref. A process killed anywhere leaves
blobs without a ref at worst; nothing can see those, and the next publisher reuses them.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from vcc.cache.blob import CAS, has_blob, place, read_blob
from vcc.cache.digest import Digest
from vcc.cache.errors import VccError
from vcc.cache.folder import Folder
from vcc.cache.manifest import Manifest
from vcc.cache.process import TMP, own_name
from vcc.cache.quarantine import set_aside
from vcc.cache.refs import MAX_REF, REFS
from vcc.cache.request import Entry, encode_ref

# Answers of file systems without hard links (or with too many of them on this file).
NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
_log = logging.getLogger(__name__)


def publish(store: Folder, manifest: Manifest, blobs: Mapping[str, bytes]) -> Entry:
    """Store the blobs, the manifest and the ref, in this order.

    Args:
        store: the open `v1` folder.
        manifest: already refers to exactly these blobs.
        blobs: name to bytes.

    Raises:
        OSError, VccError: the artifact is not published; earlier ones are as they were.
    """
    text = manifest.encode()
    entry = Entry.of(manifest, Digest.of(text))
    parts = {ref.digest: blobs[name] for name, ref in manifest.blobs.items()}
    with own_folder(store) as own:
        publish_content(store, own, parts)
        publish_content(store, own, {entry.id: text})
        publish_ref(store, own, entry)
        put_back(store, own, {**parts, entry.id: text})
    return entry


def publish_content(store: Folder, own: Folder, parts: Mapping[Digest, bytes]) -> None:
    """Store blobs under their digests; those that are there and right stay."""
    for digest, data in sorted(parts.items()):
        *folders, name = place(digest)
        with store.below(*folders, create=True) as shelf:
            add_file(
                store, own, shelf, name, data, _blob_check(store, digest, memoryview(data).nbytes)
            )
            shelf.sync()
    sync_down(store, CAS)


def put_back(store: Folder, own: Folder, parts: Mapping[Digest, bytes]) -> None:
    """Write again what a collection took that did not see the ref yet; called after the ref.

    A collection looks for refs after it took something: one of both sees the other.
    """
    lost = {digest: data for digest, data in parts.items() if not has_blob(store, digest)}
    if lost:
        publish_content(store, own, lost)


def publish_ref(store: Folder, own: Folder, entry: Entry) -> None:
    """Make an artifact visible, whose blobs and manifest are in the store for good."""
    try:
        _publish_ref(store, own, entry)
    except FileNotFoundError:  # a collection removed the folder, which was empty until now
        _publish_ref(store, own, entry)


def _publish_ref(store: Folder, own: Folder, entry: Entry) -> None:
    data = encode_ref(entry)
    base = entry.base.digest.hex
    with store.below(REFS, base, create=True) as refs:

        def check() -> None:
            if refs.read(entry.artifact, limit=MAX_REF) != data:
                raise ValueError("it differs from the ref of the same artifact")

        sync_down(store, (REFS,))  # the folder must be there for good before the ref is
        add_file(store, own, refs, entry.artifact, data, check)
        try:
            refs.sync()
        except OSError:  # what may be gone tomorrow is not shown today
            with suppress(OSError):
                os.unlink(entry.artifact, dir_fd=refs.fd)
            raise


def add_file(
    store: Folder, own: Folder, to: Folder, name: str, data: bytes, check: Callable[[], object]
) -> None:
    """Give `data` its name in `to`; what is there already is checked, and replaced if damaged."""
    temp = os.urandom(8).hex()
    own.write(temp, data)
    name_file(store, own, temp, to, name, check)


def name_file(
    store: Folder, own: Folder, temp: str, to: Folder, name: str, check: Callable[[], object]
) -> None:
    """Give a complete, synced file of `own` its name in `to`; as `add_file`."""
    try:
        os.link(temp, name, src_dir_fd=own.fd, dst_dir_fd=to.fd, follow_symlinks=False)
    except FileExistsError:
        reason = _reason(check)
        if reason:
            _log.warning("%s/%s is damaged (%s): replaced", to.path, name, reason)
            set_aside(store, to, name)
            os.rename(temp, name, src_dir_fd=own.fd, dst_dir_fd=to.fd)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # A name in the store always means the same bytes, so replacing is harmless here.
        os.rename(temp, name, src_dir_fd=own.fd, dst_dir_fd=to.fd)


def _blob_check(store: Folder, digest: Digest, size: int) -> Callable[[], object]:
    return lambda: read_blob(store, digest, size)


def _reason(check: Callable[[], object]) -> str:
    """Why the existing file cannot stay; empty when it is right."""
    try:
        check()
    except (VccError, OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def sync_down(store: Folder, names: tuple[str, ...]) -> None:
    """Make the chain of folders from `v1` to `names` durable."""
    store.sync()
    for depth in range(1, len(names) + 1):
        with store.below(*names[:depth], create=True) as folder:
            folder.sync()


@contextmanager
def own_folder(
    store: Folder, spare: Callable[[str], bool] = lambda name: False
) -> Iterator[Folder]:
    """A folder below tmp/ that no other process or container can have, removed afterwards.

    Args:
        store: the open `v1` folder.
        spare: names of files that stay whatever happens, and the folder with them.
    """
    name = own_name()
    with store.below(TMP, create=True) as tmp:
        try:
            with tmp.below(name, create=True, closed=True) as own:
                try:
                    yield own
                finally:
                    _cleaned(lambda: own.clear(spare), own.path)
        finally:
            _cleaned(lambda: os.rmdir(name, dir_fd=tmp.fd), f"{tmp.path}/{name}")


def _cleaned(work: Callable[[], object], path: str) -> None:
    """Clean-up never hides the outcome: its errors are logged, `cache gc` removes the rest."""
    try:
        work()
    except OSError as error:
        _log.info("%s could not be cleaned up: %s", path, error)
