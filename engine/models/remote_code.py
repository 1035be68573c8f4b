"""Code that a checkpoint brings along (`auto_map`): never run, refused unless the user accepts it.

vcc builds every decoder from its own table. Where a checkpoint says that code of its own computes
the model, only its user can know whether the table's row computes the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vcc.cache.digest import Digest
from vcc.cache.errors import ModelError

FIELD = "auto_map"
FLAG = "--trust-remote-code"
MOST_FILES, MOST_BYTES = 256, 16 << 20
"""Of Python source beside a config; far above any checkpoint's."""


def brings_code(config: Mapping[str, Any]) -> bool:
    """Whether a config names code of its own."""
    return bool(config.get(FIELD))


def remote_code(
    config: Mapping[str, Any], place: Path, trusted: bool
) -> tuple[tuple[str, str], ...]:
    """(name, digest) of a checkpoint's own code, for its request; empty where there is none.

    Args:
        config: the parsed `config.json`.
        place: its directory.
        trusted: the user takes it that the built-in decoder computes the same.

    Raises:
        ModelError: there is code and it is not trusted, or too much of it to read.
    """
    if not brings_code(config):
        return ()
    if not trusted:
        raise ModelError(
            f"the model in {place} comes with code of its own",
            f"{FIELD} of config.json names it: {_text(config):.200}; vcc runs no code of"
            " a checkpoint, and whether its own decoder computes the same is not certain",
            f"if you know that it does: {FLAG}; or remove {FIELD} from config.json",
        )
    named = (FIELD, Digest.of(_text(config).encode()).hex)
    return (named, *_files(place))


def code_digest(code: tuple[tuple[str, str], ...]) -> str:
    """One digest of them all."""
    return Digest.of("".join(f"{name} {digest}\n" for name, digest in code).encode()).hex


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps(config[FIELD], sort_keys=True)


def _files(place: Path) -> Iterator[tuple[str, str]]:
    files = sorted(path for path in place.glob("*.py") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    if len(files) > MOST_FILES or size > MOST_BYTES:
        raise ModelError(
            f"there is too much code in {place}",
            f"{len(files)} files of {size} bytes, at most {MOST_FILES} of {MOST_BYTES}",
        )
    for path in files:
        yield path.name, Digest.of(path.read_bytes()).hex
