"""Stored artifacts whose keys are those of a real build, with made-up blobs: no compiler runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.engine.compile.artifact import Made, manifest_of
from vcc.engine.compile.keys import build_keys
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import Source, open_source
from vcc.engine.request import BuildRequest, Settled, settle

BLOBS = {"program": b"{}", "piece/0.so": b"\x7fELF code", "constant/inv_freq": bytes(64)}


def asked(
    *, source: Source | None = None, target: str = "cpu", config: Any = None, **model: Any
) -> Settled:
    """A settled request for the demo, in the words of the configuration."""
    request = BuildRequest(
        source=source or open_source("demo", weights="none"),
        model=parse_model({"source": "demo", **model}),
        compilation=parse_config(config or {}),
        parallel=ParallelConfig(),
        target=Target.parse(target),
    )
    return settle(request)


def made(settled: Settled, *, seconds: float = 20.0, **changes: Any) -> Manifest:
    """The manifest that a build of a request here would write."""
    on_gpu = {"arch": "sm_90", "driver": "12040", "tables": "2"}
    rules = on_gpu if settled.request.target.arch == "sm_90" else {}
    content = Made(BLOBS, rules=rules)
    stages = {"compile": seconds}
    manifest = manifest_of(settled, build_keys(settled).code, content, stages)
    return msgspec.structs.replace(manifest, **changes)


def publish(store: Store, settled: Settled, **changes: Any) -> Entry:
    """Store what a build of a request here would make."""
    return store.publish(made(settled, **changes), BLOBS)


def with_code(settled: Settled, **entries: str | None) -> dict[str, Any]:
    """The `code_key` of a build here with some entries replaced; None takes one away."""
    found = {**dict(made(settled).code_key), **entries}
    return {"code_key": tuple(sorted((k, v) for k, v in found.items() if v is not None))}


def model_with(**changes: Any) -> Source:
    """The demo with another configuration: another model."""
    source = open_source("demo", weights="none")
    return replace(source, name="other", config={**source.config, **changes})
