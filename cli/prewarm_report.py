"""What came of a prewarm: a table, JSON, annotations for GitHub, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vcc.cli.console import columns, err, note, out, out_json

if TYPE_CHECKING:
    from vcc.engine.prewarm.run import Outcome


@contextmanager
def annotated(file: Path, *, github: bool, as_json: bool) -> Iterator[None]:
    """Mistakes in the file become annotations too; the error goes on."""
    from vcc.engine.prewarm.problems import BrokenFile

    try:
        yield
    except BrokenFile as error:
        if github:
            for one in error.problems:
                _annotate("error", file, one.line, one.column, one.text, quiet=as_json)
        raise


def report(
    file: Path, outcomes: Sequence[Outcome], *, others: int, github: bool, as_json: bool
) -> None:
    """Print what became of each build.

    Args:
        file: the list of builds.
        outcomes: of this shard, in its order.
        others: builds of other shards.

    Raises:
        typer.Exit: 1 when something is missing, 10 when some failed or were left, the code of the
            first when all failed.
    """
    if as_json:
        out_json(report_dict(file, outcomes, others))
    elif outcomes:
        rows = [(one.asked.cell.name, one.state.value, *_cells(one)) for one in outcomes]
        out(columns([("build", "state", "artifact", "time", "detail"), *rows]))
    if not as_json:
        out(_summed(outcomes, others))
    if github:
        _tell_github(file, outcomes, others, quiet=as_json)
    code = _code(outcomes)
    if code:
        raise typer.Exit(code)


def report_dict(file: Path, outcomes: Sequence[Outcome], others: int) -> dict[str, object]:
    """The JSON of `--json`."""
    return {
        "file": str(file),
        "builds": [_as_dict(one) for one in outcomes],
        "counts": _counts(outcomes),
        "other_shards": others,
        "exit": _code(outcomes),
    }


def _as_dict(one: Outcome) -> dict[str, object]:
    cell = one.asked.cell
    return {
        "name": cell.name,
        "model": cell.model,
        "fields": dict(cell.fields),
        "line": cell.line,
        "column": cell.column,
        "key": one.asked.key.hex if one.asked.settled is not None else None,
        "state": one.state.value,
        "artifact": one.artifact or None,
        "seconds": round(one.seconds, 3),
        "estimate": asdict(one.estimate),
        "why": one.why,
        "notes": list(one.notes),
        "error": None if one.error is None else one.error.as_dict(),
    }


def _cells(one: Outcome) -> tuple[str, str, str]:
    expected = one.estimate.seconds
    spent = f"{one.seconds:.1f} s" if one.seconds else ""
    if not spent and expected and one.state.value in ("missing", "left"):
        spent = f"about {expected:.0f} s"
    return one.artifact[:12] or "-", spent or "-", _detail(one)


def _detail(one: Outcome) -> str:
    parts = (one.why, *one.notes, "" if one.error is None else str(one.error))
    return "; ".join(part for part in parts if part)


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    from vcc.engine.prewarm.run import State

    found = Counter(one.state for one in outcomes)
    return {state.value: found[state] for state in State}


def _summed(outcomes: Sequence[Outcome], others: int) -> str:
    parts = [f"{count} {name}" for name, count in _counts(outcomes).items() if count]
    more = [f"{others} of other shards"] if others else []
    return ", ".join([*parts, *more]) or "nothing to build"


def _code(outcomes: Sequence[Outcome]) -> int:
    from vcc.cache.errors import Exit
    from vcc.engine.prewarm.apart import exit_code
    from vcc.engine.prewarm.run import State

    states = {one.state for one in outcomes}
    if State.MISSING in states:  # the answer of --check is no, whatever could not be looked at
        return int(Exit.NEGATIVE)
    errors = [one.error for one in outcomes if one.error is not None]
    if errors:
        return int(exit_code(errors, len(outcomes) - len(errors)))
    return int(Exit.PARTIAL if State.LEFT in states else Exit.OK)


def _tell_github(file: Path, outcomes: Sequence[Outcome], others: int, *, quiet: bool) -> None:
    from vcc.engine.config.environment import github_summary
    from vcc.engine.prewarm.run import State

    for one in outcomes:
        kind = "error" if one.error is not None or one.state is State.MISSING else "warning"
        if kind == "error" or one.state is State.LEFT:
            cell = one.asked.cell
            text = f"{cell.name} {one.state.value}: {_detail(one)}"
            _annotate(kind, file, cell.line, cell.column, text, quiet=quiet)
    place = github_summary()
    if place is None:
        return
    try:
        with place.open("a", encoding="utf-8") as stream:
            stream.write(_markdown(file, outcomes, others))
    except OSError as error:
        note(f"the summary for GitHub cannot be written to {place}: {error.strerror}")


def _annotate(
    kind: str, file: Path, line: int, column: int, text: str, *, quiet: bool = False
) -> None:
    """A workflow command; runners read them on both streams, JSON has the first for itself."""
    place = f"file={_escaped(str(file), ':,')},line={line},col={column}"
    (err if quiet else out)(f"::{kind} {place}::{_escaped(text)}")


def _escaped(text: str, more: str = "") -> str:
    """As GitHub's runners want it: what would end the value or the line as a percent code."""
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)


def _markdown(file: Path, outcomes: Sequence[Outcome], others: int) -> str:
    rows = [(one.asked.cell.name, one.state.value, *_cells(one)) for one in outcomes]
    table = [("build", "state", "artifact", "time", "detail"), ("---",) * 5, *rows]
    lines = (f"| {' | '.join(_in_cell(cell) for cell in row)} |" for row in table)
    return f"### vcc prewarm {file}\n\n{_summed(outcomes, others)}\n\n" + "\n".join(lines) + "\n\n"


def _in_cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()).replace("<", "&lt;") or " "
