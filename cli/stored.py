"""Artifacts in the store by what a user types: an id, the beginning of one, or a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcc.cache.request import Entry
    from vcc.cache.store import Store

DIGITS = 6
"""Digits of an id that name an artifact where a model could stand as well."""

PLAYER = "Player"
"""The loader of GPU artifacts."""


def find_entry(store: Store, name: str, loader: str = "") -> Entry:
    """The entry an id, the beginning of one, or a model names; a model's newest.

    Args:
        store: where to look.
        name: what the user typed.
        loader: of a model's artifacts only those of this loader; empty: any.

    Raises:
        UsageError: several ids begin so.
        MissingArtifact: none.
    """
    from vcc.cache.errors import MissingArtifact

    entries = tuple(store.entries())
    fit = _begins(entries, name, 4)
    if fit is not None:
        return fit
    found = _of_model(entries, name, loader)
    if found is None:
        kind = f"no artifact {name} for a GPU" if loader == PLAYER else f"no artifact {name}"
        build = f"; vcc compile {name} --target sm_90 builds one" if loader == PLAYER else ""
        raise MissingArtifact(
            kind, f"not in {store.root}", f"vcc inspect cache lists what is stored{build}"
        )
    return found


def names_artifact(store: Store, name: str) -> bool:
    """Whether `find_entry` takes a name for an id.

    Raises:
        UsageError: several ids begin so.
    """
    return _begins(tuple(store.entries()), name, 4) is not None


def pick(entries: tuple[Entry, ...], name: str) -> Entry | None:
    """The entry that an id, the beginning of one, or a model names: the first; None for none.

    Raises:
        UsageError: several ids begin so.
    """
    return _begins(entries, name, 4) or _of_model(entries, name, "")


def find_by_id(store: Store, name: str) -> Entry | None:
    """The entry whose id begins with 6 or more digits; None for anything else, such as a model.

    Raises:
        UsageError: several ids begin so.
        MissingArtifact: a whole id, which nothing has.
    """
    from vcc.cache.digest import is_digest
    from vcc.cache.errors import MissingArtifact

    digits = len(name) >= DIGITS and set(name.lower()) <= set("0123456789abcdef")
    found = _begins(tuple(store.entries()), name, DIGITS) if digits else None
    if found is None and is_digest(name.lower()):
        raise MissingArtifact(
            f"no artifact {name[:16]}", f"not in {store.root}", "vcc inspect cache lists all"
        )
    return found


def _begins(entries: tuple[Entry, ...], name: str, digits: int) -> Entry | None:
    from vcc.cache.errors import UsageError

    fit = [e for e in entries if len(name) >= digits and e.artifact.startswith(name.lower())]
    if len(fit) > 1:
        ids = ", ".join(entry.artifact[:16] for entry in fit)
        raise UsageError(f"{name} is not one artifact", f"these begin so: {ids}")
    return fit[0] if fit else None


def _of_model(entries: tuple[Entry, ...], name: str, loader: str) -> Entry | None:
    """The newest artifact of a model, whatever its dtype and settings; None if there is none."""
    from vcc.cache.errors import ModelError
    from vcc.engine.models.source import open_source

    try:
        digest = open_source(name, weights="none", trust_remote_code=True).model_key().digest.hex
    except ModelError:
        return None
    of_model = (one for one in entries if one.fields.get("model.digest") == digest)
    return next((one for one in of_model if loader in ("", _loader(one))), None)


def _loader(entry: Entry) -> str:
    return dict(entry.host_rules).get("loader", "")
