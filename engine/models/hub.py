"""Hugging Face ids: found in the local hub cache without network, downloaded only when allowed.

<cache>/models--<owner>--<name>/refs/<revision>       the commit a branch or tag was at
<cache>/models--<owner>--<name>/snapshots/<commit>/   the files of that commit
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import ModelError
from vcc.cache.extras import install
from vcc.engine.config.environment import read_environment
from vcc.engine.models.checkpoint import tensors_in

HUB_FOLDER = "models--"
"""What the folder of a model in the cache begins with."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"(?!.*\.\.)[\w][\w./-]{0,199}")
_SMALL_FILES = ("config.json", "generation_config.json", "tokenizer*", "chat_template*", "*.model")
_WEIGHT_FILES = ("model*.safetensors", "model.safetensors.index.json")


@dataclass(frozen=True, slots=True)
class HubPlace:
    """Where models from the hub are kept.

    Attributes:
        cache: directory of the hub cache.
        offline: never use the network.
    """

    cache: Path
    offline: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a hub model on this machine."""

    directory: Path
    commit: str


def hub_place() -> HubPlace:
    """The place that the environment names, as huggingface_hub would find it."""
    environment = read_environment()
    return HubPlace(environment.hf_hub_cache, environment.hf_hub_offline)


def find_model(
    name: str, revision: str | None, place: HubPlace, *, wants_weights: bool
) -> Snapshot:
    """The snapshot of a hub id; a download when it is not complete here and that is allowed.

    Args:
        name: `owner/name`.
        revision: branch, tag or commit; `main` by default.
        place: the cache.
        wants_weights: whether tensor data is wanted too.

    Raises:
        ModelError: it is not here, and the network is off, out of reach, or the extra missing.
    """
    wanted = revision or "main"
    if not HUB_ID.fullmatch(name) or not _REVISION.fullmatch(wanted):
        raise ModelError(
            f"{name!r:.80} at {wanted!r:.80} is not a Hugging Face id",
            "",
            "give owner/name, and a branch, tag or commit by --revision",
        )
    folder = place.cache / f"{HUB_FOLDER}{name.replace('/', '--')}"
    found = _local(folder, wanted)
    lack = _lack(found, place, wants_weights)
    if found is not None and not lack:
        return found
    if place.offline:
        raise _not_here(name, lack, "the network is switched off by HF_HUB_OFFLINE")
    if importlib.util.find_spec("huggingface_hub") is None:
        missing = "huggingface_hub is not installed to download it"
        hint = f"{install('huggingface-hub')}, or give a model directory"
        raise _not_here(name, lack, missing, hint)
    return _download(name, wanted, place, lack, wants_weights)


def _local(folder: Path, revision: str) -> Snapshot | None:
    commit = revision
    if not _COMMIT.fullmatch(revision):
        ref = folder / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else ""
    directory = folder / "snapshots" / commit
    if not _COMMIT.fullmatch(commit) or not directory.is_dir():
        return None
    return Snapshot(directory, commit)


def _lack(found: Snapshot | None, place: HubPlace, wants_weights: bool) -> str:
    """What keeps a snapshot from being used; empty when it is complete."""
    if found is None:
        return f"it is not in {place.cache}"
    if not (found.directory / "config.json").is_file():
        return f"its snapshot in {place.cache} has no config.json"
    try:
        if wants_weights:
            tensors_in(found.directory)
    except ModelError as error:
        return str(error)
    return ""


def _not_here(name: str, lack: str, cause: str, hint: str = "") -> ModelError:
    fetch = f"download it where there is a network (hf download {name}), or give a model directory"
    return ModelError(f"{name} is not ready on this machine", f"{lack}; {cause}", hint or fetch)


def _download(
    name: str, revision: str, place: HubPlace, lack: str, wants_weights: bool
) -> Snapshot:
    """Fetch what is missing with huggingface_hub; it resumes and checks sizes itself."""
    import huggingface_hub  # an optional extra, wanted only here

    patterns = [*_SMALL_FILES, *(_WEIGHT_FILES if wants_weights else ())]
    try:
        directory = huggingface_hub.snapshot_download(
            name, revision=revision, cache_dir=place.cache, allow_patterns=patterns
        )
    except Exception as error:
        cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise _not_here(name, lack, f"the download failed, {cause:.200}") from error
    return Snapshot(Path(directory), Path(directory).name)
