"""vcc push: copy artifacts of the store to a remote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.carried import (
    Carried,
    Told,
    carry_all,
    check_named,
    opened_remote,
    remote_of,
    report,
    vendor_of,
)
from vcc.cli.console import note

if TYPE_CHECKING:
    from vcc.cache.remote.base import Remote
    from vcc.cache.remote.push import Push
    from vcc.cache.request import Entry
    from vcc.cache.store import Store


def push_command(
    names: options.StoredSome = None,
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--to", metavar="URL", help="the remote; VCC_REMOTE by default"),
    ] = None,
    all_: options.AllStored = False,
    verify_remote: Annotated[
        bool,
        typer.Option("--verify-remote", help="read back what the remote has, replace wrong bytes"),
    ] = False,
    allow_vendor: Annotated[
        bool,
        typer.Option("--allow-vendor", help="push kernels of NVIDIA's libraries to a public place"),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be sent")] = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Copy artifacts to a remote; what is there already is not sent again."""
    from vcc.cache.remote.patience import BY_HAND, Patience
    from vcc.cache.remote.push import Push, push_stored
    from vcc.cache.store import Store

    check_named(names or (), all_)
    store = Store.open(cache_dir)
    entries = _entries(store, names or [])
    with opened_remote(remote_of(to, "--to")) as remote:

        def carry(entry: Entry, told: Told) -> Carried:
            check_vendor(store, entry, remote, allow_vendor)
            push = Push(remote, Patience(BY_HAND), verify_remote, told)
            if dry_run:
                return _planned(push, store, entry)
            done = push_stored(push, store, entry)
            state = "pushed" if done.new or done.blobs else "present"
            repaired = f"{done.repaired} replaced" if done.repaired else ""
            return Carried(entry.artifact, entry.title, state, done.sent, done.blobs, repaired)

        done = carry_all(entries, carry, "push", quiet=json)
        report(remote.url, done, as_json=json)


def _entries(store: Store, names: list[str]) -> list[Entry]:
    from vcc.cli.stored import find_entry

    found = [find_entry(store, name) for name in names] if names else list(store.entries())
    return list({entry.artifact: entry for entry in found}.values())


def _planned(push: Push, store: Store, entry: Entry) -> Carried:
    missing = push.missing(store.load(entry))
    size = sum(blob.size for blob in missing)
    state = "would push" if missing else "present"
    return Carried(entry.artifact, entry.title, state, size, len(missing))


def check_vendor(store: Store, entry: Entry, remote: Remote, allowed: bool) -> None:
    """Say so where kernels of a library go to a public place; a registry needs --allow-vendor."""
    from vcc.cache.errors import UsageError

    vendors = vendor_of(store.load(entry).manifest.info) if remote.public else ()
    if not vendors:
        return
    what = f"artifact {entry.id.short} carries kernels of {', '.join(vendors)}"
    if remote.is_registry and not allowed:
        raise UsageError(
            f"{what}, and {remote.url} is public",
            "others may not have the right to them from you",
            "Push it to a registry of your own site, or give --allow-vendor",
        )
    note(f"{what}, and goes to {remote.url}")
