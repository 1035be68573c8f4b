"""Artifacts of the local store that a user chose: by id, by model, by filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcc.cache.care.filters import Filter
    from vcc.cache.care.items import Item

MOST_LISTED = 8


def read_filters(texts: Iterable[str] | None) -> tuple[Filter, ...]:
    """The filters of `--filter`; FilterError names the column of what is wrong."""
    from vcc.cache.care.filters import parse_filter

    return tuple(parse_filter(text) for text in texts or ())


def filtered(root: Path, items: Sequence[Item], filters: Sequence[Filter]) -> tuple[Item, ...]:
    """The items that pass all filters; manifests are read only where a filter asks for versions."""
    from vcc.cache.care.filters import matching
    from vcc.cache.care.items import builder_of
    from vcc.cache.care.place import existing

    if not filters:
        return tuple(items)
    with existing(root) as store:
        return matching(items, filters, lambda item: builder_of(store, item) if store else {})


def chosen(root: Path, names: Sequence[str], filters: Sequence[Filter]) -> tuple[Item, ...]:
    """The artifacts that names and filters choose, newest first.

    Args:
        root: the root of the store.
        names: ids, beginnings of ids (6 digits or more), models; none: all that pass the filters.
        filters: all must hold.

    Raises:
        UsageError: several ids begin so.
        MissingArtifact: a name chooses nothing.
    """
    from vcc.cache.care.prune import items_of

    items = items_of(root).items
    wanted = {item.artifact for name in names for item in _named(root, items, name)}
    named = tuple(item for item in items if not names or item.artifact in wanted)
    return filtered(root, named, filters)


def _named(root: Path, items: Sequence[Item], name: str) -> Sequence[Item]:
    from vcc.cache.care.filters import MIN_PREFIX
    from vcc.cache.errors import MissingArtifact, UsageError

    begin = [item for item in items if item.artifact.startswith(name.lower())] if name else []
    if len(name) >= MIN_PREFIX and begin:
        if len(begin) > 1:
            ids = ", ".join(item.artifact[:16] for item in begin[:MOST_LISTED])
            raise UsageError(
                f"{name} is not one artifact", f"{len(begin)} begin so: {ids}", "Give more digits"
            )
        return begin
    found = [item for item in items if item.title == name] or _of_model(items, name)
    if found:
        return found
    hint = "vcc cache ls lists what is stored"
    if begin:
        hint = f"an id needs {MIN_PREFIX} digits or more: {begin[0].artifact[:12]}"
    raise MissingArtifact(f"no artifact {name}", f"not in {root}", hint)


def _of_model(items: Sequence[Item], name: str) -> list[Item]:
    from vcc.cache.errors import VccError
    from vcc.engine.models.source import open_source

    try:
        digest = open_source(name, weights="none", trust_remote_code=True).model_key().digest.hex
    except VccError:
        return []
    return [item for item in items if item.shown.get("model.digest") == digest]
