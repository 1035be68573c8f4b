"""Two artifacts, or two requests, side by side. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vcc.cache.key import Difference
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import BlobRef
from vcc.engine.compile.keys import keys_here
from vcc.engine.config.plain import canonical
from vcc.engine.request import Settled, request_pairs

LEFT_OUT = frozenset({"stages", "reasons", "environment", "identity", "bindings"})
"""Parts of `info` that follow from others, or are long and of no meaning for what is loaded."""


@dataclass(frozen=True, slots=True)
class Side:
    """What can be compared of an artifact or of a request.

    Attributes:
        name: an artifact's id or a model.
        title: what it is, for people.
        keys: labelled text by what it belongs to: request, model, code key, plan key, host rules.
        blobs: of an artifact, by name; None for a request, which has none.
        info: of an artifact, flat: path to canonical JSON.
    """

    name: str
    title: str
    keys: Mapping[str, Mapping[str, str]]
    blobs: Mapping[str, BlobRef] | None = None
    info: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_artifact(cls, artifact: str, loaded: Loaded) -> Side:
        """An artifact of a store."""
        manifest = loaded.manifest
        identity = manifest.info.get("identity", {})
        keys = {
            "request": dict(manifest.request),
            "model": {str(label): str(text) for label, text in identity.items()},
            "code key": dict(manifest.code_key),
            "plan key": dict(manifest.plan_key),
            "host rules": manifest.host_rules,
        }
        return cls(artifact, manifest.title, keys, manifest.blobs, dict(_flat("", manifest.info)))

    @classmethod
    def of_request(cls, settled: Settled) -> Side:
        """What a build of a request here would ask for; constants and host rules come later."""
        source, made = settled.request.source, keys_here(settled)
        keys = {
            "request": dict(request_pairs(settled)[0]),
            "model": dict(source.model_key()),
            "code key": dict(made.code),
            "plan key": dict(made.plan),
        }
        return cls(source.name, source.name, keys)


@dataclass(frozen=True, slots=True)
class Blobs:
    """How the blobs of two artifacts differ, by name.

    Attributes:
        same: equal bytes; changed: other bytes; added, removed: only in the second, the first.
        shared: bytes that both have, stored once.
    """

    same: tuple[str, ...]
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    shared: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs; found: the first, wanted: the second.

    Attributes:
        sections: differences by what they belong to; those that both sides can have.
        blobs: None where one side is a request.
    """

    sections: Mapping[str, tuple[Difference, ...]]
    blobs: Blobs | None

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        blobs = self.blobs
        moved = blobs is not None and bool(blobs.changed or blobs.added or blobs.removed)
        return not moved and not any(self.sections.values())


def compare(first: Side, second: Side) -> Comparison:
    """What the second has otherwise than the first."""
    names = [name for name in first.keys if name in second.keys]
    sections = {name: _diff(first.keys[name], second.keys[name]) for name in names}
    if first.blobs is None or second.blobs is None:
        return Comparison(_comparable(sections), None)
    sections["info"] = _diff(first.info, second.info)
    return Comparison(sections, _blobs(first.blobs, second.blobs))


def _comparable(sections: dict[str, tuple[Difference, ...]]) -> dict[str, tuple[Difference, ...]]:
    """A request knows no constants yet: they are no difference."""
    code = tuple(d for d in sections["code key"] if not d.label.startswith("constant."))
    return {**sections, "code key": code}


def _diff(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Difference, ...]:
    labels = sorted(first.keys() | second.keys())
    return tuple(
        Difference(label, first.get(label), second.get(label))
        for label in labels
        if first.get(label) != second.get(label)
    )


def _blobs(first: Mapping[str, BlobRef], second: Mapping[str, BlobRef]) -> Blobs:
    both = first.keys() & second.keys()
    same = {name for name in both if first[name].sha256 == second[name].sha256}
    digests = {ref.sha256 for ref in second.values()}
    return Blobs(
        same=tuple(sorted(same)),
        changed=tuple(sorted(both - same)),
        added=tuple(sorted(second.keys() - both)),
        removed=tuple(sorted(first.keys() - both)),
        shared=sum({r.sha256: r.size for r in first.values() if r.sha256 in digests}.values()),
    )


def _flat(path: str, value: Any) -> list[tuple[str, str]]:
    """A JSON value as (path, text) pairs; lists stay whole."""
    if not isinstance(value, dict):
        return [(path, canonical(value))]
    items = ((name, one) for name, one in value.items() if path or name not in LEFT_OUT)
    return [pair for name, one in items for pair in _flat(f"{path}.{name}" if path else name, one)]
