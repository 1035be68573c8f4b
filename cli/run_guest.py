"""vcc run -- CMD: run any program with its Inductor and Triton caches from the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cache.words import amount
from vcc.cli.console import columns, err, note, size_text
from vcc.cli.place import Place, open_store, takes_place

if TYPE_CHECKING:
    from vcc.engine.guest.run import GuestReport

MAX_SIZE = "4GB"


@takes_place
def guest_command(
    place: Place,
    words: Annotated[
        list[str],
        typer.Argument(metavar="-- CMD...", help="the program and its arguments"),
    ],
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--name", metavar="LABEL", help="whose caches; the script's name by default"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="begin with empty caches, and store what comes of it")
    ] = False,
    no_save: Annotated[bool, typer.Option("--no-save", help="store nothing afterwards")] = False,
    require_warm: Annotated[
        bool, typer.Option("--require-warm", help="without stored caches the program is not run")
    ] = False,
    max_size: Annotated[
        str,
        typer.Option("--max-size", metavar="SIZE", help="caches that are larger are not stored"),
    ] = MAX_SIZE,
    report: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--report", metavar="FILE", help="write what was hit and made to FILE"),
    ] = None,
) -> None:
    """Run a program with its Inductor and Triton caches restored from the store and saved to it.

    Its standard streams are its own, its exit code becomes ours, signals are handed on.
    """
    from vcc.cache.settings import parse_size
    from vcc.engine.guest.command import read_command
    from vcc.engine.guest.identity import identity_of
    from vcc.engine.guest.run import Guest, run_guest
    from vcc.engine.guest.save import Bounds

    bounds = Bounds(parse_size(max_size, "--max-size"), save=not no_save)
    command = read_command(words)
    if command.assumed:
        note(f"{command.program} names no Python: its caches are taken for {command.interpreter}")
    store = open_store(place)
    identity = identity_of(command, name)
    done = run_guest(Guest(command, identity, store, bounds, fresh, require_warm, note))
    _tell(done)
    if report is not None:
        _write(report, done)
    raise typer.Exit(done.code)


def _tell(done: GuestReport) -> None:
    """To standard error: standard output is the program's."""
    name = done.guest.identity.fields["guest.name"]
    restored, saved = done.restored, done.saved
    if restored.entry is None:
        why = "see above" if restored.misses else restored.why  # each was told of with its reason
        err(f"vcc: {name}: nothing restored: {why}")
    else:
        size = size_text(sum(one.size for one in restored.files.values()))
        where = f"artifact {restored.entry.id.short} ({restored.tier}, {restored.trust})"
        err(f"vcc: {name}: {amount(len(restored.files), 'files')}, {size}, restored from {where}")
    rows = [tuple(_shown(value) for value in row.values()) for row in done.kinds()]
    if rows:
        err(columns([("kind", "restored", "used", "made"), *rows]))
    if saved.entry is None:
        err(f"vcc: {name}: nothing saved: {saved.why}")
    else:
        err(f"vcc: {name}: {size_text(saved.size)} saved as artifact {saved.entry.id.short}")
        if saved.why:
            note(saved.why)


def _shown(value: object) -> str:
    return "not known" if value is None else str(value)


def _write(file: Path, done: GuestReport) -> None:
    import json

    try:
        file.write_text(json.dumps(done.as_dict(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:  # the program's exit code counts, not this
        note(f"cannot write the report to {file}: {error.strerror}")
