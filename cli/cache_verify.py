"""vcc cache verify and repair: is all of the store what it says, and what is done where not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vcc.cli import options
from vcc.cli.console import columns, events, note, out, out_json, short, size_text

if TYPE_CHECKING:
    from vcc.cache.care.finding import Checked, Finding
    from vcc.cache.care.repair import Repaired


def verify_command(
    repair: Annotated[
        bool, typer.Option("--repair", help="take what is damaged out of use")
    ] = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Check every ref, manifest and blob by SHA-256, shelves and signatures; exit 7 for damage."""
    if repair:
        return repair_command(cache_dir, json)
    from vcc.cache.care.check import check
    from vcc.cache.errors import Exit
    from vcc.cache.settings import cache_root

    root = cache_root(cache_dir)
    checked = _watched(lambda: check(root), quiet=json)
    if json:
        out_json({"root": str(root), **_checked_dict(checked)})
    else:
        _tell(root, checked, "vcc cache repair takes it out of use")
    return Exit.INTEGRITY if checked.findings else Exit.OK


def repair_command(cache_dir: options.CacheDir = None, json: options.Json = False) -> int:
    """Set damaged files aside, with the refs that lead to them; all else stays as it is."""
    from vcc.cache.care.repair import repair
    from vcc.cache.errors import Exit
    from vcc.cache.settings import cache_root

    root = cache_root(cache_dir)
    done = _watched(lambda: repair(root), quiet=json)
    if json:
        moved = {
            "aside": ["/".join(at) for at in done.aside],
            "failed": ["/".join(at) for at in done.failed],
            "busy": list(done.busy),
            "temporary": len(done.swept.gone),
        }
        out_json({"root": str(root), **_checked_dict(done.checked), **moved})
    else:
        _tell(root, done.checked, "")
        _tell_repaired(done)
    return Exit.INTEGRITY if done.failed or done.busy else Exit.OK


T = TypeVar("T")


def _watched(work: Callable[[], T], *, quiet: bool) -> T:
    """Do the work, with a sign of life while it lasts."""
    shown, begun = events(quiet=quiet), time.monotonic()
    try:
        shown.stage_started("verify")
        found = work()
        shown.stage_finished("verify", time.monotonic() - begun)
        return found
    finally:
        shown.close()


def _tell(root: Path, checked: Checked, hint: str) -> None:
    for text in checked.notes:
        note(text)
    if checked.newer:
        note(f"{checked.newer} artifacts are of a later vcc and were not judged")
    if checked.findings:
        out(columns([_row(one) for one in checked.findings]))
    counts = ", ".join(f"{count} {kind}" for kind, count in checked.counts.items() if count)
    looked = f"{counts or 'nothing'} in {root}, {size_text(checked.size)} compared"
    if not checked.findings:
        out(f"whole: {looked}")
        return
    out(f"{len(checked.findings)} damaged: {looked}")
    if hint:
        note(hint)


def _tell_repaired(done: Repaired) -> None:
    for at in done.failed:
        note(f"{'/'.join(at)} could not be moved")
    if done.busy:
        note(f"what is missing may come back: {', '.join(done.busy)} is at work in tmp/")
        note("vcc cache repair looks again when that is done")
    out(f"{len(done.aside)} files set aside, {len(done.swept.gone)} temporary folders removed")


def _row(one: Finding) -> tuple[str, ...]:
    used = ", ".join(short(artifact) for artifact in one.artifacts[:4])
    return one.kind, "/".join(short(part) for part in one.place), one.reason, used or "-"


def _checked_dict(checked: Checked) -> dict[str, object]:
    return {
        "whole": not checked.findings,
        "counts": checked.counts,
        "size": checked.size,
        "newer": checked.newer,
        "notes": checked.notes,
        "damage": [
            {
                "kind": one.kind,
                "place": "/".join(one.place),
                "why": one.reason,
                "artifacts": list(one.artifacts),
            }
            for one in checked.findings
        ],
    }
