"""Artifacts that a prewarm file's builds would make, stored without building anything."""

from __future__ import annotations

from pathlib import Path

import msgspec

from support.fake_engine import BLOBS, manifest_of
from vcc.cache.store import Store
from vcc.cli.prewarm_options import model_options
from vcc.cli.request import build_request
from vcc.engine.compile.keys import build_keys, pairs
from vcc.engine.prewarm.asked import Asked, ask
from vcc.engine.prewarm.file import read_file


def publish(store: Store, one: Asked, build_ms: int = 0, **changes: object) -> str:
    """An artifact that answers, as if it had been built here; its id."""
    assert one.settled is not None
    made, keys = manifest_of(one.settled.request), build_keys(one.settled)
    fields = {"code_key": pairs(keys.code), "plan_key": pairs(keys.plan), "build_ms": build_ms}
    return store.publish(msgspec.structs.replace(made, **{**fields, **changes}), BLOBS).artifact


def publish_all(file: Path, store: Store) -> int:
    """Store the artifacts of a whole file; how many they are."""
    cells = read_file(file)
    asked = ask(str(file), cells, lambda cell: build_request(model_options(file, cell, 0)))
    return len({publish(store, one) for one in asked})
