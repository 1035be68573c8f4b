"""Removing artifacts: the ref first, then the manifest, then blobs that nothing else names.

Killed after any step, what is left is whole artifacts, and blobs that the next collection finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache import roots
from vcc.cache.blob import has_blob, place, read_blob, sought
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.care.clock import now_of
from vcc.cache.care.garbage import BLOBS, Garbage, Scene
from vcc.cache.care.items import Item
from vcc.cache.care.marks import AtWork, Marks
from vcc.cache.care.place import existing
from vcc.cache.care.sweep import Swept, sweep
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact
from vcc.cache.folder import Folder
from vcc.cache.manifest import Manifest
from vcc.cache.publish import own_folder
from vcc.cache.refs import REFS
from vcc.cache.taken import give_back
from vcc.cache.trouble import Unsafe, storage


@dataclass(slots=True)
class Removed:
    """What was removed, or would be.

    Args:
        items: the artifacts that went.
        kept: those that stay, with the reason.
        swept: their files.
    """

    items: list[Item] = field(default_factory=list)
    kept: list[tuple[Item, str]] = field(default_factory=list)
    swept: Swept = field(default_factory=Swept)


def remove(
    root: Path, chosen: Sequence[Item], *, force: bool = False, dry_run: bool = False
) -> Removed:
    """Remove artifacts that are neither pinned nor in use.

    Args:
        root: the root of the store.
        chosen: which; those that are gone already count as removed.
        force: also those that a process uses. It has read them and goes on with what it has.
        dry_run: only say what would go.

    Raises:
        StorageError, Unsafe: the store cannot be read or written.
    """
    done = Removed()
    with storage("remove artifacts from the store at", str(root)), existing(root) as store:
        if store is None or not chosen:
            return done
        now = now_of(store)
        unheld = (item.artifact for item in chosen) if force else ()
        scene = Scene(store, Marks(store, now, unheld), now)
        going = _allowed(scene, chosen, force, done)
        named = {item.artifact: scene.marks.named(item.artifact) for item in going}
        if not dry_run:
            going = _refs_gone(scene, going, force, done)
        done.items += going
        try:
            garbage = list(_files(scene, going, named))
        except AtWork as error:
            done.swept.notes.append(f"blobs stay for the next collection: {error}")
            return done
        if dry_run:
            done.swept.gone += garbage
        else:
            sweep(scene, garbage, done.swept)
    return done


def why_kept(item: str, pins: frozenset[str], held: Mapping[str, object], force: bool) -> str:
    """Why an artifact must stay; empty when it may go."""
    if item in pins:
        return "it is pinned"
    return "" if force or item not in held else "a process uses it"


def _allowed(scene: Scene, chosen: Iterable[Item], force: bool, done: Removed) -> list[Item]:
    pins, held = roots.pinned(scene.store), roots.live(scene.store, scene.now)
    going: list[Item] = []
    for item in chosen:
        why = why_kept(item.artifact, pins, held, force)
        if why:
            done.kept.append((item, why))
        else:
            going.append(item)
    return going


def _refs_gone(scene: Scene, going: list[Item], force: bool, done: Removed) -> list[Item]:
    """Take the refs away; those of artifacts that came into use meanwhile are put back."""
    with own_folder(scene.store) as own:
        moved = [item for item in going if _moved(scene.store, own, item, done)]
        allowed = _allowed(scene, moved, force, done)
        for item in moved:
            if item not in allowed:
                _put_back(scene, own, item)
        for base in {item.base for item in allowed}:  # for good before any blob goes
            with suppress(FileNotFoundError), scene.store.below(REFS, base) as folder:
                folder.sync()
    return allowed


def _moved(store: Folder, own: Folder, item: Item, done: Removed) -> bool:
    try:
        with store.below(REFS, item.base) as folder:
            os.rename(item.artifact, item.artifact, src_dir_fd=folder.fd, dst_dir_fd=own.fd)
    except FileNotFoundError:
        return True  # another process was faster; its files may be left
    except (OSError, Unsafe) as error:
        done.kept.append((item, str(error)))
        return False
    return True


def _put_back(scene: Scene, own: Folder, item: Item) -> None:
    """Give a ref its place again, unless another process took its content while it was away."""
    ref = item.artifact
    with scene.store.below(REFS, item.base, create=True) as folder, suppress(FileNotFoundError):
        os.rename(ref, ref, src_dir_fd=own.fd, dst_dir_fd=folder.fd)
        if _lacks(scene.store, Digest(ref)):
            os.unlink(ref, dir_fd=folder.fd)
        folder.sync()


def _lacks(store: Folder, artifact: Digest) -> bool:
    """Whether something of an artifact is not there; what cannot be told is for a check."""
    try:
        text = sought(store, artifact, lambda: read_blob(store, artifact, None, MAX_BYTES))
        manifest = Manifest.decode(text)
    except MissingArtifact:
        return True
    except IntegrityError:
        return False
    return not all(_there(store, one.digest) for one in manifest.blobs.values())


def _there(store: Folder, digest: Digest) -> bool:
    return has_blob(store, digest) or give_back(store, place(digest))


def _files(
    scene: Scene, gone: Sequence[Item], named: Mapping[str, frozenset[str]]
) -> Iterator[Garbage]:
    """Manifests, then blobs that only these artifacts name."""
    ids = [item.artifact for item in gone]
    marked = scene.marks.marked(without=ids) - set(ids)
    others = sorted(set().union(*(named[one] for one in ids)).difference(ids))
    for digest in (*ids, *others):
        size = None if digest in marked else _free_size(scene.store, digest)
        if size is not None:
            yield Garbage(BLOBS, place(Digest(digest)), size, "its artifact was removed")


def _free_size(store: Folder, digest: str) -> int | None:
    """Bytes of a blob; None where it is not there, or somebody publishes it right now."""
    *folders, name = place(Digest(digest))
    with suppress(FileNotFoundError), store.below(*folders) as shelf:
        state = os.stat(name, dir_fd=shelf.fd, follow_symlinks=False)
        return state.st_size if state.st_nlink == 1 else None
    return None
