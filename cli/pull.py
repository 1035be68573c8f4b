"""vcc pull: copy artifacts of a remote into the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.carried import Carried, Told, carry_all, check_named, opened_remote, remote_of, report
from vcc.cli.console import note

if TYPE_CHECKING:
    from vcc.cache.remote.base import Remote
    from vcc.cache.remote.patience import Patience
    from vcc.cache.request import Entry
    from vcc.cache.store import Store


def pull_command(
    names: options.StoredSome = None,
    from_: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--from", metavar="URL", help="the remote; VCC_REMOTE by default"),
    ] = None,
    all_: options.AllStored = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be fetched")] = False,
    policy: options.Policy = None,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Copy artifacts from a remote, every byte verified; of a model the newest that runs here."""
    from vcc.cache.remote.patience import BY_HAND, Patience
    from vcc.cache.remote.pull import pull
    from vcc.cli.place import Place, open_store

    check_named(names or (), all_)
    store = open_store(Place(cache_dir, policy=policy))
    with opened_remote(remote_of(from_, "--from")) as remote:
        entries, bad = _entries(remote, Patience(BY_HAND), names or [])

        def carry(entry: Entry, told: Told) -> Carried:
            if dry_run:
                return _planned(store, entry)
            patience = Patience(BY_HAND)
            done = pull(store.root, remote, entry, store.gate, patience, by_hand=True, told=told)
            state = "pulled" if done.new or done.blobs else "present"
            row = (entry.artifact, entry.title, state, done.received, done.blobs)
            return Carried(*row, done.trust)

        done = carry_all(entries, carry, "pull", quiet=json)
        report(remote.url, done, as_json=json, bad=bad)


def _entries(
    remote: Remote, patience: Patience, names: Sequence[str]
) -> tuple[list[Entry], tuple[str, ...]]:
    """What names mean on the remote; whole ids are found without reading the rest.

    Of everything also the bad refs: what lies behind them was asked for too.
    """
    from vcc.cache.digest import is_digest
    from vcc.cache.errors import MissingArtifact
    from vcc.cache.remote.offers import offered, offers
    from vcc.cli.stored import pick

    found: dict[str, Entry] = {}
    bad: tuple[str, ...] = ()
    ids = [name for name in names if is_digest(name)]
    for entry in (one for name in ids for one in offered(remote, patience, name)):
        found[entry.artifact] = entry
    others = [name for name in names if name not in ids]
    if others or not names:
        everything = offers(remote, patience)
        for line in everything.bad:
            note(line)
        bad = () if names else everything.bad
        best = _usable_first(everything.entries)
        picked = [pick(best, name) for name in others] if names else list(best)
        found |= {entry.artifact: entry for entry in picked if entry is not None}
        ids += [name for name, entry in zip(others, picked, strict=False) if entry is None]
    missing = [name for name in ids if name not in found]
    if missing:
        raise MissingArtifact(
            f"no artifact {missing[0][:64]}",
            f"not on {remote.url}",
            f"vcc pull --all --from {remote.url} --dry-run lists what is there",
        )
    return list(found.values()), bad


def _usable_first(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The same entries, those that this host can run before the others."""
    from vcc.engine.runtime.host import refusal

    return tuple(sorted(entries, key=lambda one: refusal(dict(one.host_rules)) is not None))


def _planned(store: Store, entry: Entry) -> Carried:
    have = entry in store.entries()
    state = "present" if have else "would pull"
    return Carried(entry.artifact, entry.title, state, 0 if have else entry.size)
