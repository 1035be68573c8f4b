"""Small artifacts, damage to order, and child processes for the tests of the store."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.cache.errors import VccError
from vcc.cache.key import Key
from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry, decode_ref
from vcc.cache.store import Store

BASE = Key.of({"model.digest": "ab" * 32, "model.dtype": "fp32"})
BLOBS: Mapping[str, bytes] = {
    "program": b'{"steps":[]}',
    "piece/0.so": b"\x7fELF" + bytes(range(256)) * 8,
    "piece/0.json": b'{"nodes":[]}',
    "constant/inv_freq": bytes(1024),
    "golden/0": b"golden" * 50,
}


def manifest_of(mode: str = "full", created: int = 1_700_000_000, **changes: object) -> Manifest:
    """A manifest of the test model."""
    fields: dict[str, object] = {
        "request": Key.of({**dict(BASE.entries), "mode": mode}).entries,
        "open_fields": ("mode",),
        "code_key": Key.of({"passes": "1"}).entries,
        "plan_key": Key.of({"block": "16"}).entries,
        "host_rules": {"cpu": "x86-64-v3"},
        "builder": {"torch": "2.13.0"},
        "title": "demo",
        "info": {"ranges": [[1, 64]], "seconds": 1.5},
        "created": created,
    }
    return Manifest(**{**fields, **changes})  # type: ignore[arg-type]


def quiet(root: Path) -> Store:
    """A store that reports damage to nobody."""
    return Store.open(root, on_damage=lambda damage: None)


def blob_path(root: Path, digest: Digest | str) -> Path:
    """Where a blob or manifest lies."""
    text = str(digest)
    return root / "v1/cas/sha256" / text[:2] / text


def ref_path(root: Path, entry: Entry) -> Path:
    """Where the ref of an entry lies."""
    return root / "v1/refs" / entry.base.digest.hex / entry.artifact


def overwrite(path: Path, data: bytes) -> None:
    """Put a file with other content in place; hard links elsewhere are not touched."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)


def flipped(data: bytes, offset: int, bit: int) -> bytes:
    """The same bytes with one bit changed."""
    changed = bytearray(data)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def child(work: Callable[[], object], *, uid: int | None = None, umask: int | None = None) -> int:
    """Start `work` in a forked process, as another account if asked; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if umask is not None:
            os.umask(umask)
        if uid is not None and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_of(pid: int) -> int:
    """The exit status of a child; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def assert_intact(root: Path, entry: Entry, blobs: Mapping[str, bytes] = BLOBS) -> None:
    """The entry is found and every byte of it is right."""
    store = Store.open(root)
    assert entry in store.find(entry.base)
    assert store.load(entry).read_all() == dict(blobs)


def whole_artifacts(root: Path) -> dict[str, dict[str, bytes]]:
    """The content of every artifact that is right to the last byte; none is held for it."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(root.glob("v1/refs/*/*")):
        try:
            entry = decode_ref(path.read_bytes(), path.parent.name, path.name)
            data = _bytes_of(root, entry.artifact)
            manifest = Manifest.decode(data)
            assert Entry.of(manifest, entry.id) == entry
            blobs = {name: _bytes_of(root, ref.sha256) for name, ref in manifest.blobs.items()}
        except (OSError, VccError, AssertionError):
            continue
        found[entry.artifact] = blobs
    return found


def _bytes_of(root: Path, digest: str) -> bytes:
    data = blob_path(root, digest).read_bytes()
    assert Digest.of(data).hex == digest
    return data


class Told:
    """A store over `local` and `lower` directories, and what it said."""

    def __init__(self, local: Path, *lower: Path, **more: object) -> None:
        self.damages: list = []
        self.troubles: list = []
        self.store = Store(
            local, self.damages.append, lower=lower, on_trouble=self.troubles.append, **more
        )
