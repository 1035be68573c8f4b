"""Put an artifact together: the manifest over what was compiled. Free of torch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vcc.cache.digest import Digest
from vcc.cache.manifest import Manifest
from vcc.engine.compile.keys import host_rules, pairs, plan_entries
from vcc.engine.compile.versions import versions
from vcc.engine.config.modes import Backend
from vcc.engine.config.plain import plain
from vcc.engine.config.resolved import Reason
from vcc.engine.config.types import CompilationConfig
from vcc.engine.config.uncut import without_cuts
from vcc.engine.models.factory import LiveRef
from vcc.engine.models.quant.told import quant_rows
from vcc.engine.models.traced_keys import binding_info, is_traced
from vcc.engine.op_routes import op_routes
from vcc.engine.request import Settled, config_entries, request_pairs


@dataclass(frozen=True, slots=True)
class Made:
    """What compiling made; empty for a mode that compiles nothing.

    Attributes:
        blobs: every blob by its name in the manifest.
        info: `passes`, `pieces`, `constants` and what else the manifest says of the code.
        rules: host rules that follow from it.
        plan: entries of the plan key that only the build knows.
        reads: environment variables that its processes read, with who read them.
    """

    blobs: Mapping[str, bytes] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)


def manifest_of(
    settled: Settled, code: Mapping[str, str], made: Made, stages: Mapping[str, float]
) -> Manifest:
    """The manifest without blob references, which publishing fills in.

    Args:
        settled: the request.
        code: the code key's entries that are known before anything is compiled.
        made: what was compiled.
        stages: seconds of each stage.
    """
    request, open_fields = request_pairs(settled)
    loader = settled.resolved.artifact.loader(_graph_mode(settled))
    return Manifest(
        request=pairs(request),
        open_fields=open_fields,
        code_key=pairs({**code, **_constant_entries(made)}),
        plan_key=pairs({**plan_entries(settled), **made.plan}),
        host_rules={**host_rules(settled, loader), **made.rules},
        created=int(time.time()),
        builder=versions(),
        title=title_of(settled, made.info),
        info=_info(settled, made, stages),
        build_ms=round(1000 * sum(stages.values())),
    )


def title_of(settled: Settled, info: Mapping[str, Any]) -> str:
    """What an artifact is, for people: model, dtype, modes, and pieces that are not compiled."""
    config, dtype = _as_cut(settled, info)[0], settled.model.dtype
    eager = config.backend if config.backend is Backend.EAGER else None
    parts = (settled.request.source.title, dtype, config.mode, config.cuda_graph_mode, eager)
    return " · ".join(str(plain(part)) for part in parts if part is not None)


def _as_cut(
    settled: Settled, info: Mapping[str, Any]
) -> tuple[CompilationConfig, tuple[Reason, ...]]:
    """The configuration that boots, and what the trace overruled: a request knows no graph."""
    config = settled.resolved.config
    if settled.request.source.kind != "decoder" or info.get("cut", True):
        return config, ()
    return without_cuts(config)


def _settled_anew(settled: Settled, config: CompilationConfig) -> dict[str, str]:
    """Fields of the request that came out otherwise in the configuration that boots."""
    asked, found = (dict(config_entries(one)) for one in (settled.resolved.config, config))
    return {label: text for label, text in found.items() if asked.get(label) != text}


def _said_of_config(settled: Settled, info: Mapping[str, Any]) -> dict[str, Any]:
    config, overruled = _as_cut(settled, info)
    return {
        "settled": _settled_anew(settled, config),
        "model": {**plain(settled.model), "source": settled.request.source.title},
        "compilation": plain(config),
        "reasons": [str(reason) for reason in (*settled.reasons, *overruled)],
        "overruled": [str(reason) for reason in overruled],
    }


def _graph_mode(settled: Settled) -> Any:
    return settled.resolved.config.cuda_graph_mode


def _constant_entries(made: Made) -> dict[str, str]:
    found = {name: data for name, data in made.blobs.items() if name.startswith("constant/")}
    return {name.replace("/", "."): Digest.of(data).hex for name, data in found.items()}


def _info(settled: Settled, made: Made, stages: Mapping[str, float]) -> dict[str, Any]:
    source = settled.request.source
    info: dict[str, Any] = {
        "kind": source.kind,
        "identity": dict(source.model_key()),
        "parameters": source.parameters,
        **_said_of_config(settled, made.info),
        "ops": [*(one.as_dict() for one in op_routes(settled)), *_quantised(settled)],
        "stages": {name: round(seconds, 3) for name, seconds in stages.items()},
        "passes": [],
        "pieces": [],
        "constants": {},
        **made.info,
    }
    info |= binding_info(source)
    if source.kind != "decoder":
        info["inputs"] = [str(shape) for shape in source.shapes]
        if isinstance(source.factory, LiveRef):
            info |= source.factory.held.told
    return info


def _quantised(settled: Settled) -> list[dict[str, Any]]:
    source, platform = settled.request.source, settled.request.target.platform
    return quant_rows(source.spec if source.kind == "decoder" else None, platform)


def replan(manifest: Manifest, settled: Settled) -> Manifest:
    """The manifest of the same code under another request, such as other capture sizes."""
    request, open_fields = request_pairs(settled)
    return msgspec.structs.replace(
        manifest,
        request=pairs(request),
        open_fields=open_fields,
        plan_key=pairs(plan_entries(settled)),
        title=title_of(settled, manifest.info),
        created=int(time.time()),
        info={**manifest.info, **_said_of_config(settled, manifest.info), **_bound_anew(settled)},
    )


def _bound_anew(settled: Settled) -> dict[str, Any]:
    """Bindings of a model whose code does not say what its tensors are called."""
    source = settled.request.source
    return binding_info(source) if is_traced(source) else {}
