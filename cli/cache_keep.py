"""vcc cache pin, unpin, unlock: what is to stay, and who is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vcc.cli import options
from vcc.cli.chosen import chosen, read_filters
from vcc.cli.console import columns, out, out_json, short

if TYPE_CHECKING:
    from vcc.cache.care.locks import Lock


def pin_command(
    names: options.StoredNames = None,
    filters: options.Filters = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Keep artifacts until they are unpinned: nothing evicts or removes them."""
    return _pins(names, filters, cache_dir, keep=True, as_json=json)


def unpin_command(
    names: options.StoredNames = None,
    filters: options.Filters = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Let artifacts go again."""
    return _pins(names, filters, cache_dir, keep=False, as_json=json)


def unlock_command(
    force: Annotated[
        bool, typer.Option("--force", help="also locks that somebody holds, or may hold")
    ] = False,
    dry_run: options.DryRun = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> int:
    """Show who builds, and remove build locks whose holder is gone."""
    from vcc.cache.care.unlock import unlock
    from vcc.cache.errors import Exit
    from vcc.cache.settings import cache_root

    root = cache_root(cache_dir)
    done = unlock(root, force=force, dry_run=dry_run)
    if json:
        answer = {"root": str(root), "dry_run": dry_run}
        lists = {"removed": done.removed, "kept": done.kept}
        out_json(
            answer | {word: [_lock_dict(one) for one in found] for word, found in lists.items()}
        )
    else:
        word = "would go" if dry_run else "removed"
        rows = [_lock_row(one, one.state.value) for one in done.kept]
        rows += [_lock_row(one, word) for one in done.removed]
        out(columns(rows) if rows else "no locks")
    return Exit.NEGATIVE if done.kept else Exit.OK


def _pins(
    names: options.StoredNames,
    filters: options.Filters,
    cache_dir: options.CacheDir,
    *,
    keep: bool,
    as_json: bool,
) -> int:
    from vcc.cache.care.pins import pin_all, unpin_all
    from vcc.cache.errors import Exit, UsageError
    from vcc.cache.settings import cache_root

    if not names and not filters:
        raise UsageError("nothing is named", "", "vcc cache ls lists what is stored")
    root = cache_root(cache_dir)
    items = chosen(root, names or (), read_filters(filters))
    changed = (pin_all if keep else unpin_all)(root, [item.artifact for item in items])
    word = "pinned" if keep else "unpinned"
    if as_json:
        pins = [{"artifact": x.artifact, "changed": x.artifact in changed} for x in items]
        out_json({"root": str(root), word: pins})
    else:
        rows = [
            (short(x.artifact), x.title, word if x.artifact in changed else f"was {word} before")
            for x in items
        ]
        out(columns(rows) if rows else "no artifact passes the filters")
    return Exit.OK if items else Exit.NEGATIVE


def _lock_row(lock: Lock, word: str) -> tuple[str, str, str]:
    return short(lock.digest), word, str(lock.holder or "its holder is unknown")


def _lock_dict(lock: Lock) -> dict[str, object]:
    holder = lock.holder
    return {
        "digest": lock.digest,
        "state": lock.state.value,
        "holder": None
        if holder is None
        else {"host": holder.host, "pid": holder.pid, "since": holder.since, "what": holder.what},
    }
