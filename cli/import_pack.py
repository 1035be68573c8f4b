"""vcc import: bring the artifacts of a pack into the store."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from vcc.cli import options
from vcc.cli.carried import Carried, progress, report

if TYPE_CHECKING:
    from vcc.cache.pack.read import PackReader

STDIN = "-"


def import_command(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="the pack; - is standard input", show_default=False),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="verify the pack and list it, store nothing")
    ] = False,
    policy: options.Policy = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Bring the artifacts of a pack into the store, all of it verified first."""
    from vcc.cache.pack.read import PackReader
    from vcc.cache.pack.unpack import unpack
    from vcc.cli.place import Place, open_store

    store = open_store(Place(cache_dir, policy=policy))
    with reading(file) as stream, progress("import", quiet=json) as told:
        reader = PackReader.open(stream)
        if dry_run:
            done = _listed(reader)
        else:
            unpacked = unpack(store.root, reader, store.gate, told)
            done = [
                Carried(
                    one.entry.artifact,
                    one.entry.title,
                    "imported" if one.new else "present",
                    one.entry.size,
                    note=one.trust,
                )
                for one in unpacked
            ]
    report(file, done, as_json=json)


def _listed(reader: PackReader) -> list[Carried]:
    """What a pack holds, once all of its bytes were verified."""
    for _, parts in reader.blobs():
        for _ in parts:
            pass
    entries = [one.entry for one in reader.artifacts]
    return [Carried(e.artifact, e.title, "would import", e.size) for e in entries]


@contextmanager
def reading(file: str) -> Iterator[BinaryIO]:
    """The bytes of a file or of standard input.

    Raises:
        StorageError: it cannot be read.
    """
    from vcc.cache.named_files import open_named
    from vcc.cache.trouble import storage

    name, hint = ("standard input" if file == STDIN else file), "Check where the pack lies"
    with storage("read", name, hint):
        if file == STDIN:
            if sys.stdin is None:  # closed by who started us
                raise OSError(errno.EBADF, "it is closed")
            yield sys.stdin.buffer
            return
        with open_named(Path(file)) as stream:
            yield stream
