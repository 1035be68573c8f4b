"""Taken files: what a sweep has out of its place, under a name that says where that is.

    tmp/<host.boot.process.random>/taken-<what>.<digest>

A sweep takes files, looks again whether something names them, and then destroys them or gives them
back (`care/sweep.py`). Killed in between, it leaves them there, and something may name them by now.
So nothing in such a folder is lost: who misses a file looks for it there and gives it back, and a
folder is destroyed only after all that was taken into it has its place again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress

from vcc.cache.blob import CAS, place
from vcc.cache.digest import Digest
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.process import TMP, Life, Process
from vcc.cache.pulled import PULLED
from vcc.cache.quarantine import exists
from vcc.cache.trouble import Unsafe
from vcc.cache.use import USE

SIGNATURES = "signatures"
Place = tuple[str, ...]
PLACES: Mapping[str, Place] = {
    "blob": CAS,
    "use": USE,
    "mark": (PULLED,),
    "signatures": (SIGNATURES,),
}
"""By the word in the name of a taken file: the folders that it is from, below `v1`."""

_NAME = re.compile(rf"taken-({'|'.join(PLACES)})\.([0-9a-f]{{64}})")


def taken_name(at: Place) -> str:
    """The name of a file while it is taken.

    Args:
        at: its place, path components below `v1`; in one of the folders of `PLACES`.
    """
    folders = CAS if at[: len(CAS)] == CAS else at[:-1]
    what = next(what for what, where in PLACES.items() if where == folders)
    return f"taken-{what}.{at[-1]}"


def place_of(name: str) -> Place | None:
    """The place of a taken file by its name; None for a name of another form."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    what, digest = match.groups()
    return place(Digest(digest)) if what == "blob" else (*PLACES[what], digest)


def is_taken(name: str) -> bool:
    """Whether a name is one of a taken file."""
    return place_of(name) is not None


def give_back(store: Folder, at: Place) -> bool:
    """Give a file its place again that a sweep took which does not run, as far as can be seen.

    A sweep that runs gives back by itself what has to stay. One that cannot be seen from here may
    run: it keeps its name of the file, and what it destroys then is that name alone.

    Args:
        store: the open `v1` folder, of a store that may be written.
        at: the place, path components below `v1`.

    Returns:
        Whether it was found. Never raises: where it cannot be given back, it is missing still.
    """
    name = taken_name(at)
    with suppress(OSError, Unsafe):
        for folder, process in takers(store):
            life = process.life()
            if life is not Life.RUNS:
                with suppress(OSError, Unsafe), store.below(TMP, folder) as own:
                    put_in_place(store, own, name, keep=life is not Life.GONE)
                    return True
    return False


def give_all_back(
    store: Folder, own: Folder, first: Container[str] = (), names: Container[str] | None = None
) -> None:
    """Give all taken files of a folder their places again.

    Args:
        store: the open `v1` folder.
        own: a folder below `tmp/`.
        first: digests that go before all others: manifests of artifacts that have a ref, without
            which another sweep could not know what they name.
        names: of taken files; None: of all.

    Raises:
        OSError, Unsafe: something could not be given back, and is still in the folder.
    """
    found = [(at[-1] not in first, name) for name in own.names() if (at := place_of(name))]
    for _, name in sorted(found):
        if names is not None and name not in names:
            continue
        with suppress(FileNotFoundError):  # somebody else gave it back
            put_in_place(store, own, name)


def put_in_place(store: Folder, own: Folder, name: str, *, keep: bool = False) -> None:
    """Give one taken file its place again; what lies there by now stays and is as good.

    Args:
        store: the open `v1` folder.
        own: the folder below `tmp/` that it is in.
        name: its name there.
        keep: whether that name stays, where it can.

    Raises:
        OSError, Unsafe: it could not be given back; FileNotFoundError: it is not in that folder.
    """
    at = place_of(name)
    if at is None or not exists(own, name):
        raise FileNotFoundError(name)
    *folders, last = at
    with store.below(*folders, create=True) as to:
        _name_again(own, name, to, last)
        to.sync()
    if not keep:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=own.fd)


def read_taken(store: Folder, at: Place, limit: int) -> bytes | None:
    """The bytes of a file that any sweep has taken, wherever that runs; None where none has.

    Nothing is compared or moved. A folder that this account may not look into has nothing to
    read; `closed_takers` tells of those.
    """
    name = taken_name(at)
    with suppress(OSError, Unsafe):
        for folder, _ in takers(store):
            with suppress(OSError, Unsafe, WrongSize), store.below(TMP, folder) as own:
                return own.read(name, limit=limit)
    return None


def is_in_hands(store: Folder, at: Place) -> bool:
    """Whether any sweep has taken the file of this place; says nothing about its bytes."""
    name = taken_name(at)
    with suppress(OSError, Unsafe):
        for folder, _ in takers(store):
            with suppress(OSError, Unsafe), store.below(TMP, folder) as own:
                if exists(own, name):
                    return True
    return False


def closed_takers(store: Folder) -> bool:
    """Whether a folder of some process cannot be looked into: of another account, mostly."""
    try:
        for folder, _ in takers(store):
            with suppress(FileNotFoundError, NotADirectoryError), store.below(TMP, folder):
                pass
    except (OSError, Unsafe):
        return True
    return False


def takers(store: Folder) -> Iterator[tuple[str, Process]]:
    """The folders below `tmp/` that belong to a process, and that process."""
    with suppress(FileNotFoundError, NotADirectoryError), store.below(TMP) as tmp:
        for name in tmp.names():
            process = Process.parse(name)
            if process is not None:
                yield name, process


def _name_again(own: Folder, name: str, to: Folder, last: str) -> None:
    if _is_folder(own, name):
        _merge(own, name, to, last)
        return
    try:
        os.link(name, last, src_dir_fd=own.fd, dst_dir_fd=to.fd, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        return
    except OSError:  # no hard links here; who was faster has put the same there
        os.rename(name, last, src_dir_fd=own.fd, dst_dir_fd=to.fd)


def _is_folder(own: Folder, name: str) -> bool:
    with suppress(OSError, Unsafe), own.below(name):
        return True
    return False


def _merge(own: Folder, name: str, to: Folder, last: str) -> None:
    """Move what is in a folder into one that may be there by now; what that has is newer."""
    with own.below(name) as taken, to.below(last, create=True) as kept:
        for one in taken.names():
            if one in kept.names():
                os.unlink(one, dir_fd=taken.fd)
            else:
                os.rename(one, one, src_dir_fd=taken.fd, dst_dir_fd=kept.fd)
        kept.sync()
    os.rmdir(name, dir_fd=own.fd)
