"""Put an artifact together: the manifest and its blobs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from vcc.cache.digest import Digest
from vcc.cache.manifest import Manifest
from vcc.engine.compile.keys import host_rules, pairs, plan_entries
from vcc.engine.compile.toolchain import versions
from vcc.engine.config.plain import plain
from vcc.engine.graphs import program as programs
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.models.bindings import bindings_of
from vcc.engine.request import Settled, request_pairs
from vcc.engine.types import CompiledPiece, Passed, Pieces


@dataclass(frozen=True, slots=True)
class Content:
    """What a build made; empty for a mode that compiles nothing."""

    pieces: Pieces | None = None
    compiled: tuple[CompiledPiece, ...] = ()
    passed: Passed | None = None
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)


def blobs_of(content: Content) -> dict[str, bytes]:
    """Every blob by its name in the manifest."""
    if content.pieces is None:
        return {}
    blobs = {"program": programs.encode(content.pieces.program)}
    for piece in content.compiled:
        blobs[f"piece/{piece.id}.so"] = piece.library
        if piece.external_ops is not None:
            blobs[f"piece/{piece.id}.json"] = piece.external_ops
        if piece.golden is not None:
            blobs[f"golden/{piece.id}"] = piece.golden
    for name, data in content.constants.items():
        blobs[f"constant/{name}"] = data.contiguous().view(torch.uint8).numpy().tobytes()
    return blobs


def manifest_of(settled: Settled, code: Mapping[str, str], content: Content) -> Manifest:
    """The manifest without blob references, which publishing fills in."""
    request, open_fields = request_pairs(settled)
    loader = settled.resolved.artifact.loader(_graph_mode(settled))
    return Manifest(
        request=pairs(request),
        open_fields=open_fields,
        code_key=pairs({**code, **_constant_entries(content)}),
        plan_key=pairs(plan_entries(settled)),
        host_rules=host_rules(settled, loader),
        created=int(time.time()),
        builder=versions(),
        title=title_of(settled),
        info=_info(settled, content),
    )


def title_of(settled: Settled) -> str:
    """What an artifact is, for people: model, dtype, modes."""
    config, dtype = settled.resolved.config, settled.model.dtype
    parts = (settled.request.source.name, dtype, config.mode, config.cuda_graph_mode)
    return " · ".join(str(plain(part)) for part in parts if part is not None)


def _graph_mode(settled: Settled) -> Any:
    return settled.resolved.config.cuda_graph_mode


def _constant_entries(content: Content) -> dict[str, str]:
    blobs = blobs_of(content)
    names = [name for name in blobs if name.startswith("constant/")]
    return {name.replace("/", "."): Digest.of(blobs[name]).hex for name in names}


def _info(settled: Settled, content: Content) -> dict[str, Any]:
    source = settled.request.source
    info: dict[str, Any] = {
        "kind": source.kind,
        "model": plain(settled.model),
        "compilation": plain(settled.resolved.config),
        "reasons": [str(reason) for reason in settled.reasons],
        "ops": [f"{d.op}: {'on' if d.enabled else 'off'} ({d.why})" for d in _decisions(settled)],
        "stages": {name: round(seconds, 3) for name, seconds in content.stages.items()},
        "passes": _passes(content),
        "pieces": _pieces(content),
        "constants": {
            name: {"dtype": NAMES[data.dtype], "shape": list(data.shape)}
            for name, data in content.constants.items()
        },
    }
    if source.kind == "decoder":
        bindings = bindings_of(source.spec, source.tensors)
        info["bindings"] = {name: str(binding) for name, binding in bindings.items()}
    else:
        info["inputs"] = [str(shape) for shape in source.shapes]
    return info


def _decisions(settled: Settled) -> Sequence[Any]:
    return settled.resolved.ops.decisions


def _passes(content: Content) -> list[dict[str, Any]]:
    reports = content.passed.reports if content.passed else ()
    return [
        {"name": r.name, "version": r.version, "matches": r.matches, "refused": list(r.refused[:8])}
        for r in reports
    ]


def _pieces(content: Content) -> list[dict[str, Any]]:
    calls = content.pieces.calls if content.pieces else {}
    return [
        {
            "id": piece.id,
            "calls": calls[piece.id],
            "bytes": len(piece.library),
            "golden": piece.golden is not None,
            "notes": list(piece.notes),
            "seconds": round(piece.seconds, 3),
        }
        for piece in content.compiled
    ]


def replan(manifest: Manifest, settled: Settled) -> Manifest:
    """The manifest of the same code under another request, such as other capture sizes."""
    request, open_fields = request_pairs(settled)
    return msgspec.structs.replace(
        manifest,
        request=pairs(request),
        open_fields=open_fields,
        plan_key=pairs(plan_entries(settled)),
        title=title_of(settled),
        created=int(time.time()),
        info={
            **manifest.info,
            "model": plain(settled.model),
            "compilation": plain(settled.resolved.config),
            "reasons": [str(reason) for reason in settled.reasons],
        },
    )
