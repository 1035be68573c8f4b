"""What became of artifacts that were carried to or from somewhere: rows, JSON and exit code."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import typer

from vcc.cli.console import BarEvents, columns, err, events, out, out_json, size_text

if TYPE_CHECKING:
    from vcc.cache.errors import VccError
    from vcc.cache.remote.base import Remote
    from vcc.cache.request import Entry

Told = Callable[[str, str], None]
REUSED = "reused"


@dataclass(frozen=True, slots=True)
class Carried:
    """One artifact and what became of it.

    Attributes:
        artifact, title: which.
        state: "pushed", "pulled", "exported", "imported", "present", "would push", "failed" ...
        bytes: that went over the line, or would.
        blobs: that went over the line, or would.
        note: what a user should know, such as why it is trusted.
        error: as in every `--json`; empty when all went well.
    """

    artifact: str
    title: str
    state: str
    bytes: int = 0
    blobs: int = 0
    note: str = ""
    error: dict[str, object] = field(default_factory=dict)

    @classmethod
    def failed(cls, entry: Entry, error: VccError) -> Carried:
        """One that did not arrive."""
        return cls(entry.artifact, entry.title, "failed", note=str(error), error=error.as_dict())


def carry_all(
    entries: Sequence[Entry], carry: Callable[[Entry, Told], Carried], stage: str, *, quiet: bool
) -> tuple[Carried, ...]:
    """Carry each artifact; one that fails does not stop the rest.

    Args:
        carry: does one; it may call what it is given from several threads.
        stage: name for the progress.
    """
    from vcc.cache.errors import VccError

    done: list[Carried] = []
    with progress(stage, quiet=quiet) as told:
        for entry in entries:
            try:
                done.append(carry(entry, told))
            except VccError as error:
                done.append(Carried.failed(entry, error))
                if len(entries) == 1:
                    raise
    return tuple(done)


@contextmanager
def progress(stage: str, *, quiet: bool) -> Iterator[Told]:
    """Progress of blobs on standard error while the block lasts; reused ones are summed up."""
    import time

    shown = events(quiet=quiet)
    lock, begun, states = threading.Lock(), time.monotonic(), Counter[str]()

    def tell(item: str, state: str) -> None:
        with lock:
            states[state] += 1
            if state != REUSED or isinstance(shown, BarEvents):
                shown.progress(item, state)

    try:
        shown.stage_started(stage)
        yield tell
        if states[REUSED] and not quiet:
            err(f"{stage}: {states[REUSED]} blobs were there already")
        shown.stage_finished(stage, time.monotonic() - begun)
    finally:
        shown.close()


def report(
    place: str,
    done: Sequence[Carried],
    *,
    as_json: bool,
    silent: bool = False,
    bad: Sequence[str] = (),
) -> None:
    """Print what became of them.

    Args:
        place: the remote or file.
        silent: standard output carries something else.
        bad: refs that were asked for and cannot be read, a line each.

    Raises:
        typer.Exit: 10 when some failed and some did not, else the code of the first failure.
    """
    from vcc.cache.errors import Exit

    failed = [one for one in done if one.error]
    if as_json:
        out_json({"place": place, "artifacts": [asdict(one) for one in done], "bad": list(bad)})
    elif done:
        rows = [
            (one.artifact[:12], one.state, size_text(one.bytes), one.title, one.note)
            for one in done
        ]
        (err if silent else out)(columns(rows))
    elif not silent:
        out(f"nothing to do for {place}")
    if len(failed) < len(done) and (failed or bad):
        raise typer.Exit(int(Exit.PARTIAL))
    if failed:
        raise typer.Exit(int(str(failed[0].error["exit"])))
    if bad:
        raise typer.Exit(int(Exit.REMOTE))


def remote_of(option: str | None, name: str) -> str:
    """The URL of an option, else of VCC_REMOTE.

    Raises:
        UsageError: there is neither.
    """
    from vcc.cache.errors import UsageError
    from vcc.cache.settings import read_settings

    url = option or read_settings().remote
    if not url:
        raise UsageError(
            f"no remote: {name} is not given and VCC_REMOTE is not set",
            "",
            f"{name} s3://bucket/prefix, or oci://registry/team/cache, or file:///mnt/share",
        )
    return url


def check_named(names: Sequence[str], every: bool) -> None:
    """Refuse names together with --all, and neither; UsageError."""
    from vcc.cache.errors import UsageError

    if bool(names) == every:
        raise UsageError(
            "name artifacts, or give --all" + (", not both" if every else ""),
            "",
            "vcc inspect cache lists what is stored",
        )


def vendor_of(info: dict[str, object]) -> tuple[str, ...]:
    """The libraries whose kernels an artifact carries, by its manifest's `info`."""
    listed = info.get("vendor_cubins")
    rows = listed if isinstance(listed, list) else []
    names = {row.get("library") for row in rows if isinstance(row, dict)}
    return tuple(sorted(str(name) for name in names))


@contextmanager
def opened_remote(url: str) -> Iterator[Remote]:
    """The remote at a URL, closed afterwards."""
    from vcc.cache.remote.open import open_remote

    remote = open_remote(url)
    try:
        yield remote
    finally:
        remote.close()
