"""From option values to a build request; flags go before the JSON of --compilation-config."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcc.engine.config.types import CompilationConfig
    from vcc.engine.request import BuildRequest


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The values of the options that say which model and how; None was not given."""

    model: str
    mode: str | None = None
    compile: str | None = None
    dtype: str | None = None
    shapes: str | None = None
    config: str | None = None
    level: str | None = None
    weights: str | None = None
    revision: str | None = None
    inputs: tuple[str, ...] = ()
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    jobs: int = 0
    keep: Path | None = None


def build_request(options: ModelOptions) -> BuildRequest:
    """Open the model and read the configuration; no torch.

    Raises:
        ConfigError, ModelError: a value or the model cannot be used.
    """
    from vcc.engine.config.parse import parse_model
    from vcc.engine.config.target import Target
    from vcc.engine.config.types import ParallelConfig
    from vcc.engine.models.source import open_source
    from vcc.engine.request import BuildRequest

    compilation = compilation_config(options)
    model = parse_model(_said(options, _MODEL_FIELDS) | {"source": options.model})
    source = open_source(
        options.model, revision=options.revision, weights=options.weights, shapes=options.inputs
    )
    return BuildRequest(
        source=source,
        model=model,
        compilation=compilation,
        parallel=ParallelConfig(),
        target=Target.parse("cpu"),
        weights=options.weights,
        jobs=options.jobs,
        keep=options.keep,
    )


_MODEL_FIELDS = {
    name: name
    for name in ("revision", "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
}
_CONFIG_FIELDS = {"mode": "cuda_graph_mode", "compile": "mode", "level": "level"}


def compilation_config(options: ModelOptions) -> CompilationConfig:
    """The JSON's fields, with those of the flags over them."""
    from vcc.engine.config.parse import parse_config
    from vcc.engine.config.spellings import parse_sizes

    said = _said(options, _CONFIG_FIELDS)
    if options.shapes is not None:
        said["capture_sizes"] = list(parse_sizes(options.shapes, "--shapes"))
    base, flags = parse_config(options.config), parse_config(said)
    named = {f.name: getattr(flags, f.name) for f in fields(flags) if f.name in said}
    return replace(base, **named)


def _said(options: ModelOptions, names: dict[str, str]) -> dict[str, Any]:
    pairs = ((field, getattr(options, option)) for option, field in names.items())
    return {field: value for field, value in pairs if value is not None}
