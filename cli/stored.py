"""Artifacts in the store by what a user types: an id, the beginning of one, or a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcc.cache.request import Entry
    from vcc.cache.store import Store

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
    from vcc.cache.errors import MissingArtifact, UsageError

    entries = tuple(store.entries())
    hex_name = name.lower()
    fit = [e for e in entries if len(hex_name) >= 4 and e.artifact.startswith(hex_name)]
    if len(fit) > 1:
        ids = ", ".join(entry.artifact[:16] for entry in fit)
        raise UsageError(f"{name} is not one artifact", f"these begin so: {ids}")
    if fit:
        return fit[0]
    found = _of_model(entries, name, loader)
    if found is None:
        kind = f"no artifact {name} for a GPU" if loader == PLAYER else f"no artifact {name}"
        build = f"; vcc compile {name} --target sm_90 builds one" if loader == PLAYER else ""
        raise MissingArtifact(
            kind, f"not in {store.root}", f"vcc inspect cache lists what is stored{build}"
        )
    return found


def _of_model(entries: tuple[Entry, ...], name: str, loader: str) -> Entry | None:
    """The newest artifact of a model, whatever its dtype and settings; None if there is none."""
    from vcc.cache.errors import ModelError
    from vcc.engine.models.source import open_source

    try:
        digest = open_source(name, weights="none").model_key().digest.hex
    except ModelError:
        return None
    of_model = (one for one in entries if one.fields.get("model.digest") == digest)
    return next((one for one in of_model if loader in ("", _loader(one))), None)


def _loader(entry: Entry) -> str:
    return dict(entry.host_rules).get("loader", "")
