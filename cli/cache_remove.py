"""vcc cache rm, prune, gc: what goes, never what is pinned or in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.chosen import chosen, filtered, read_filters
from vcc.cli.console import columns, note, out, out_json, short, size_text

if TYPE_CHECKING:
    from vcc.cache.care.evict import Bounds
    from vcc.cache.care.remove import Removed
    from vcc.cache.care.sweep import Swept


def rm_command(
    names: options.StoredNames = None,
    filters: options.Filters = None,
    force: Annotated[
        bool, typer.Option("--force", help="also artifacts that a process uses now")
    ] = False,
    dry_run: options.DryRun = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Remove artifacts by id, by model or by filter; pinned ones stay."""
    from vcc.cache.care.remove import remove
    from vcc.cache.errors import UsageError
    from vcc.cache.settings import cache_root

    if not names and not filters:
        raise UsageError("nothing is named", "", "vcc cache rm ID, or --filter 'idle>30d'")
    root = cache_root(cache_dir)
    found = chosen(root, names or (), read_filters(filters))
    done = remove(root, found, force=force, dry_run=dry_run)
    reasons = {item.artifact: "asked for" for item in done.items}
    return _report(root, done, reasons, dry_run=dry_run, as_json=json)


def prune_command(
    max_size: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--max-size", metavar="20GB", help="evict until the store is no larger"),
    ] = None,
    keep_last: Annotated[
        int,
        typer.Option("--keep-last", metavar="N", min=0, help="of each model the N newest stay"),
    ] = 0,
    unused_for: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--unused-for", metavar="30d", help="evict what was not used for so long"),
    ] = None,
    filters: options.Filters = None,
    dry_run: options.DryRun = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Evict artifacts that are worth least: seconds of building saved per byte, and recency."""
    from vcc.cache.care.prune import prune
    from vcc.cache.settings import cache_root

    bounds = _bounds(max_size, keep_last, unused_for)
    root, wanted = cache_root(cache_dir), read_filters(filters)
    done = prune(root, bounds, passes=lambda items: filtered(root, items, wanted), dry_run=dry_run)
    reasons = {one.item.artifact: one.why for one in done.evicted}
    return _report(root, done.removed, reasons, dry_run=dry_run, as_json=json)


def gc_command(
    grace: Annotated[
        str,
        typer.Option("--grace", metavar="1h", help="files younger than this stay"),
    ] = "1h",
    dry_run: options.DryRun = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Remove what nothing needs: blobs without an artifact, remains of killed processes."""
    from vcc.cache.care.leftovers import sweep_leftovers
    from vcc.cache.care.sweep import collect
    from vcc.cache.settings import cache_root

    root = cache_root(cache_dir)
    done = collect(root, grace_s=_duration("--grace", grace), dry_run=dry_run)
    sweep_leftovers(done, dry_run=dry_run)
    if json:
        out_json({"root": str(root), "dry_run": dry_run, **_swept_dict(done)})
    else:
        _tell_swept(done, dry_run=dry_run)
    return _code(bool(done.failed), bool(done.gone))


def _bounds(max_size: str | None, keep_last: int, unused_for: str | None) -> Bounds:
    from vcc.cache.care.evict import Bounds
    from vcc.cache.errors import UsageError
    from vcc.cache.settings import parse_size, read_settings

    unused_s = 0.0 if unused_for is None else _duration("--unused-for", unused_for)
    size = 0 if max_size is None else parse_size(max_size, "--max-size")
    if max_size is None and not keep_last and not unused_s:
        size = read_settings().max_size
    bounds = Bounds(size, keep_last, unused_s)
    if max_size is not None and not size:
        raise UsageError(
            "--max-size=0 is no bound",
            "0 means that there is none, as in VCC_MAX_SIZE",
            "vcc cache rm --filter 'size>0B' removes everything",
        )
    if not bounds:
        raise UsageError(
            "prune needs a bound", "", "--max-size 20GB, --keep-last 2 or --unused-for 30d"
        )
    return bounds


def _duration(option: str, text: str) -> float:
    from vcc.cache.care.filters import DURATIONS, parse_duration
    from vcc.cache.errors import UsageError

    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(f"{option}={text} is not a duration", "", DURATIONS) from None


def _report(
    root: Path, done: Removed, reasons: dict[str, str], *, dry_run: bool, as_json: bool
) -> int:
    if as_json:
        gone = [
            {"artifact": item.artifact, "title": item.title, "why": reasons.get(item.artifact, "")}
            for item in done.items
        ]
        kept = [{"artifact": item.artifact, "why": why} for item, why in done.kept]
        answer = {"root": str(root), "dry_run": dry_run, "removed": gone, "kept": kept}
        out_json({**answer, "files": _swept_dict(done.swept)})
    else:
        _tell(done, reasons, dry_run=dry_run)
    return _code(bool(done.kept or done.swept.failed), bool(done.items))


def _tell(done: Removed, reasons: dict[str, str], *, dry_run: bool) -> None:
    for item, why in done.kept:
        hint = f"; vcc cache unpin {short(item.artifact)}" if item.pinned else ""
        note(f"{short(item.artifact)} {item.title} stays: {why}{hint}")
    if not done.items:
        out("nothing to remove")
        return
    rows = [
        (short(item.artifact), size_text(item.size), item.title, reasons.get(item.artifact, ""))
        for item in done.items
    ]
    word = "would free" if dry_run else "freed"
    out(columns(rows))
    out(f"{len(rows)} artifacts, {word} {size_text(done.swept.size)}")
    _tell_failed(done.swept)


def _tell_swept(done: Swept, *, dry_run: bool) -> None:
    _tell_failed(done)
    rows = [(kind, str(count), size_text(size)) for kind, (count, size) in done.counts().items()]
    word = "would be free" if dry_run else "are free"
    out(columns(rows) if rows else "nothing to collect")
    if rows:
        out(f"{size_text(done.size)} {word}")


def _tell_failed(done: Swept) -> None:
    for text in done.notes:
        note(text)
    for one, why in done.failed:
        note(f"{'/'.join(one.place)} could not be removed: {why}")


def _swept_dict(done: Swept) -> dict[str, object]:
    kinds = {kind: {"count": n, "size": size} for kind, (n, size) in done.counts().items()}
    places = [{"kind": one.kind, "place": "/".join(one.place), "why": one.why} for one in done.gone]
    failed = [{"place": "/".join(one.place), "why": why} for one, why in done.failed]
    return {
        "size": done.size,
        "kinds": kinds,
        "places": places,
        "failed": failed,
        "notes": done.notes,
    }


def _code(failed: bool, some: bool) -> int:
    """0, or 10 when a part stays, or 1 when all does."""
    from vcc.cache.errors import Exit

    if not failed:
        return Exit.OK
    return Exit.PARTIAL if some else Exit.NEGATIVE
