"""vcc export: write artifacts into one file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from vcc.cli import options
from vcc.cli.carried import Carried, check_named, progress, report

STDOUT = "-"


def export_command(
    names: options.StoredSome = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="the pack; - is standard output")
    ] = "",
    all_: options.AllStored = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Write artifacts into one file, for `vcc import` on another machine."""
    from vcc.cache.errors import UsageError
    from vcc.cache.pack.write import content_of, write_pack
    from vcc.cache.store import Store
    from vcc.cli.stored import find_entry

    check_named(names or (), all_)
    if not output:
        raise UsageError("no file: -o is not given", "", "-o artifacts.vccpack, or -o -")
    if output == STDOUT and json:
        raise UsageError("--json and -o - both want standard output", "", "Choose one")
    store = Store.open(cache_dir)
    entries = [find_entry(store, n) for n in names] if names else list(store.entries())
    entries = list({entry.artifact: entry for entry in entries}.values())
    content = content_of(store, entries)
    with writing(output) as write, progress("export", quiet=json) as told:
        write_pack(content, write, told)
    done = [Carried(e.artifact, e.title, "exported", e.size) for e in entries]
    report(output, done, as_json=json, silent=output == STDOUT)


@contextmanager
def writing(output: str) -> Iterator[Callable[[bytes], object]]:
    """Writes to a file that has its name only when all of it is there, or to standard output.

    Raises:
        StorageError: it cannot be written.
        BrokenPipeError: who reads standard output has left, or it is closed.
    """
    from vcc.cache.trouble import storage, storage_error

    if output == STDOUT:
        if sys.stdout is None:  # closed by who started us
            raise BrokenPipeError
        try:
            yield sys.stdout.buffer.write
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            hint = "Check where it leads"
            raise storage_error("write to", "standard output", error, hint) from error
        return
    path = Path(output)
    temp = path.with_name(f".{path.name[:80]}.{os.urandom(6).hex()}")
    with storage("write", output, "Check the folder that -o names, and its room"):
        try:
            with temp.open("xb") as file:
                yield file.write
                file.flush()
                os.fsync(file.fileno())
            temp.replace(path)
        finally:
            with suppress(OSError):
                temp.unlink(missing_ok=True)
