"""Console: the one place that prints. Results on standard output, everything else on error.

Standard output carries plain text or one JSON object, so that it can be piped. Progress is drawn
with Rich on a terminal; elsewhere lines say what happens, and a heartbeat that it still does.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from vcc.cli.streams import tell, write

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from vcc.cache.errors import VccError

HEARTBEAT_SECONDS = 10.0

_OVER = ("done", "reused", "failed")

_HALVES = re.compile("[\ud800-\udfff]")


def out(text: str, *, end: str = "\n") -> None:
    """Print to standard output at once; a character it cannot show becomes an escape.

    Raises:
        StorageError: what it leads to takes no bytes, such as a file on a full disk.
        BrokenPipeError: who read it has left, or it is closed.
    """
    if sys.stdout is None:  # closed by who started us
        raise BrokenPipeError
    try:
        write(sys.stdout, text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from vcc.cache.errors import StorageError

        raise StorageError("cannot write to standard output", str(error.strerror)) from error


def err(text: str) -> None:
    """Print a line to standard error; one that it does not take is lost, and nothing else."""
    tell(text + "\n")


def out_json(value: Mapping[str, object]) -> None:
    """Print one JSON object to standard output; bytes of names that are no UTF-8 are escaped."""
    try:
        text = _json_text(value)
    except (UnicodeEncodeError, TypeError):  # halves of characters are no UTF-8
        plain = json.dumps(value, indent=2, ensure_ascii=False)
        text = _HALVES.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)
    out(text)


def out_line(value: Mapping[str, object]) -> None:
    """Print one JSON object as one line."""
    out(json.dumps(value, ensure_ascii=True, separators=(",", ":")))


def _json_text(value: Mapping[str, object]) -> str:
    """As json.dumps writes it, which takes ten times as long, and lists may be long."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def ask(prompt: str) -> str | None:
    """A line from the terminal; None at its end (Ctrl-D)."""
    with suppress(ImportError):
        import readline  # noqa: F401 (gives `input` editing and history)
    if (
        sys.stdout is None or not sys.stdout.isatty()
    ):  # `input` would write the prompt there, among the results
        sys.stderr.write(prompt)
        sys.stderr.flush()
        prompt = ""
    try:
        return input(prompt)
    except EOFError:
        err("")
        return None


def note(reason: str) -> None:
    """Say something a user should hear about; it cannot steer the terminal."""
    err(f"note: {_lines(reason)}")


def show_error(error: VccError) -> None:
    """What, why and hint on standard error; names from a download cannot steer the terminal."""
    what = printable(error.what)
    if _on_terminal():
        _console().print("error", style="bold red", end="")
        err(f": {what}")
    else:
        err(f"error: {what}")
    for label, text in (("why", error.why), ("hint", error.hint)):
        if text:
            err(f"  {label}: {_lines(text)}")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, two spaces apart; the last column is not padded.

    A cell may come from elsewhere, such as the title of a pulled artifact: it cannot steer the
    terminal, as characters that cannot be printed become question marks.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1:] = [0]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)) for r in rows)
    return "\n".join(line.rstrip() for line in lines)


def printable(text: str) -> str:
    """The text with a question mark for each character that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def _lines(text: str) -> str:
    """As `printable`, but what a compiler said keeps its lines."""
    return "\n".join(printable(line.replace("\t", " ")) for line in text.split("\n"))


def short(name: str) -> str:
    """A digest by its first 12 digits, as everywhere; other names as they are."""
    is_digest = len(name) == 64 and set(name) <= set("0123456789abcdef")
    return name[:12] if is_digest else name


def size_text(size: int) -> str:
    """Bytes for people: 1.5 MB."""
    value, units = float(size), ("B", "kB", "MB", "GB", "TB")
    index = 0
    while value >= 1000 and index < len(units) - 1:
        value, index = value / 1000, index + 1
    return f"{value:.0f} B" if index == 0 else f"{value:.1f} {units[index]}"


def age_text(seconds: float) -> str:
    """A length of time for people, in its largest whole unit: 3 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def events(*, quiet: bool = False) -> LineEvents | BarEvents:
    """Who shows progress: bars on a terminal, lines elsewhere, notes alone when quiet."""
    if quiet:
        return LineEvents(quiet=True)
    return BarEvents(_console()) if _on_terminal() else LineEvents()


class LineEvents:
    """Progress as lines on standard error, with a heartbeat while a stage is silent."""

    def __init__(self, *, quiet: bool = False, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._quiet, self._every = quiet, heartbeat
        self._stage, self._total, self._done = "", 0, 0
        self._begun = 0.0
        self._stop: threading.Event | None = None

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Begin a stage and its heartbeat."""
        self._end_heartbeat()
        self._stage, self._total, self._done = stage, total, 0
        self._begun = time.monotonic()
        if not self._quiet:
            self._stop = threading.Event()
            threading.Thread(target=self._beat, args=(self._stop,), daemon=True).start()

    def stage_finished(self, stage: str, seconds: float) -> None:
        """One line a stage."""
        self._end_heartbeat()
        if not self._quiet:
            err(f"{stage}: {seconds:.2f} s")

    def progress(self, item: str, state: str) -> None:
        """One line an item, when it is over."""
        if state in _OVER:
            self._done += 1
        if state in _OVER and not self._quiet:
            count = f" ({self._done} of {self._total})" if self._total else ""
            err(f"{self._stage}: {short(item)} {state}{count}")

    def note(self, reason: str) -> None:
        """Say it, also when quiet."""
        note(reason)

    def close(self) -> None:
        """End the heartbeat."""
        self._end_heartbeat()

    def _beat(self, stop: threading.Event) -> None:
        while not stop.wait(self._every):
            err(heartbeat(self._stage, self._done, self._total, time.monotonic() - self._begun))

    def _end_heartbeat(self) -> None:
        if self._stop is not None:
            self._stop.set()
            self._stop = None


class BarEvents:
    """Progress as bars: one for the stage with an estimate, one for each item at work."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self._bars: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            Remaining(),
            console=console,
            transient=True,
        )
        self._stage: TaskID | None = None
        self._name = ""
        self._items: dict[str, TaskID] = {}

    def stage_started(self, stage: str, total: int = 0) -> None:
        """Begin a stage's bar; without a known total it only pulses."""
        self._name = stage
        self._bars.start()
        self._stage = self._bars.add_task(stage, total=total or None)

    def stage_finished(self, stage: str, seconds: float) -> None:
        """Replace the bars by a line."""
        for task in (self._stage, *self._items.values()):
            if task is not None:
                self._bars.remove_task(task)
        self._stage, self._items = None, {}
        self._bars.stop()
        err(f"{stage}: {seconds:.2f} s")

    def progress(self, item: str, state: str) -> None:
        """Move an item's bar."""
        if item not in self._items:
            self._items[item] = self._bars.add_task(f"  {short(item)}", total=None)
        over = state in _OVER
        self._bars.update(
            self._items[item],
            description=f"  {short(item)} {state}",
            total=1 if over else None,
            completed=1 if over else 0,
        )
        if over and self._stage is not None:
            self._bars.advance(self._stage)

    def note(self, reason: str) -> None:
        """A line above the bars."""
        self._bars.console.print(f"note: {reason}", markup=False, highlight=False)

    def close(self) -> None:
        """Give the terminal back."""
        self._bars.stop()


def heartbeat(stage: str, done: int, total: int, seconds: float) -> str:
    """The line that says a stage is alive, with an estimate once something is done."""
    counted = f", {done} of {total} done" if total else ""
    left = seconds / done * (total - done) if done and total > done else 0.0
    estimate = f", about {left:.0f} s left" if left else ""
    return f"{stage}: running for {seconds:.0f} s{counted}{estimate}"


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
