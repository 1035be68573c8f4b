"""From option values to a build request; flags go before the JSON of --compilation-config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from vcc.cli import options
from vcc.cli.folding import Command, folding

if TYPE_CHECKING:
    from vcc.engine.config.types import CompilationConfig
    from vcc.engine.request import BuildRequest
    from vcc.engine.torch_shim.profiles import DeviceProfile


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The values of the options that say which model and how; None was not given.

    The fields are the options themselves: `takes_model` gives them to a command.
    """

    model: options.Model
    target: options.Target = None
    target_profile: options.TargetProfile = None
    mode: options.Mode = None
    compile: options.Compile = None
    dtype: options.DtypeName = None
    kv_cache_dtype: options.KvCacheDtype = None
    shapes: options.Shapes = None
    config: options.Config = None
    level: options.Level = None
    weights: options.Weights = None
    revision: options.Revision = None
    trust_remote_code: options.TrustRemoteCode = False
    inputs: options.InputShapes = None
    max_model_len: options.MaxModelLen = None
    max_num_seqs: options.MaxNumSeqs = None
    max_num_batched_tokens: options.MaxNumBatchedTokens = None
    enable_lora: options.EnableLora = False
    max_loras: options.MaxLoras = None
    max_lora_rank: options.MaxLoraRank = None
    lora_target_modules: options.LoraTargets = None
    jobs: options.Jobs = 0
    keep: options.Keep = None


def takes_model(*without: str) -> Callable[[Command], Command]:
    """A command whose parameter `asked` becomes the options of `ModelOptions`.

    Args:
        without: fields that the command has no option for.
    """
    return folding("asked", ModelOptions, without)


def build_request(options: ModelOptions) -> BuildRequest:
    """Open the model and read the configuration; no torch.

    Raises:
        ConfigError, ModelError: a value or the model cannot be used.
    """
    from vcc.engine.config.parse import parse_model
    from vcc.engine.config.types import ParallelConfig
    from vcc.engine.models.source import open_source
    from vcc.engine.request import BuildRequest
    from vcc.engine.targets import choose_target

    compilation = compilation_config(options)
    model = parse_model(_said(options, _MODEL_FIELDS) | {"source": options.model})
    source = open_source(
        options.model,
        revision=options.revision,
        weights=options.weights,
        trust_remote_code=options.trust_remote_code,
        shapes=tuple(options.inputs or ()),
    )
    return BuildRequest(
        source=source,
        model=model,
        compilation=compilation,
        parallel=ParallelConfig(),
        target=choose_target(options.target, source.kind, compilation),
        profile=_profile(options),
        target_named=options.target is not None,
        weights=options.weights,
        jobs=options.jobs,
        keep=options.keep,
    )


def _profile(options: ModelOptions) -> DeviceProfile | None:
    if options.target_profile is None:
        return None
    from vcc.engine.torch_shim.profiles import read_profile

    return read_profile(options.target_profile)


_MODEL_FIELDS = {
    name: name
    for name in (
        *("revision", "dtype", "kv_cache_dtype"),
        *("max_model_len", "max_num_seqs", "max_num_batched_tokens"),
        *("enable_lora", "max_loras", "max_lora_rank", "lora_target_modules"),
    )
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
    # A flag that was not given says nothing, so that it stays open.
    return {field: value for field, value in pairs if value is not None and value is not False}
