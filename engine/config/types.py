# ruff: noqa: RUF009 - `keyed` and its like return dataclass fields
"""The configuration values. None means "not set by the user"; `resolve` fills what is unset."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from vcc.cache.errors import ConfigError

from .checks import check_count, check_kind, check_printable, check_sizes, check_texts
from .fields import keyed, planned, unkeyed
from .modes import (
    AttentionSupport,
    Backend,
    CompileMode,
    Dtype,
    GraphMode,
    KvDtype,
    OptLevel,
    Platform,
)
from .target import CPU_LEVELS, DEFAULT_CPU_LEVEL, Target

__all__ = [
    "CPU_LEVELS",
    "DEFAULT_CPU_LEVEL",
    "DEFAULT_SPLITTING_OPS",
    "ArenaConfig",
    "AttentionSupport",
    "Backend",
    "CompilationConfig",
    "CompileMode",
    "DimRange",
    "Dtype",
    "DynamicShapes",
    "GraphMode",
    "KvDtype",
    "ModelConfig",
    "OptLevel",
    "ParallelConfig",
    "PassConfig",
    "Platform",
    "Scalar",
    "Target",
]

DEFAULT_SPLITTING_OPS = ("vcc::kv_write", "vcc::paged_attention", "vcc::rope_kv_write")
"""Where VCC_COMPILE cuts: a bare name matches every overload."""

Scalar = bool | int | float | str
"""A value of an Inductor option."""


@dataclass(frozen=True, slots=True)
class PassConfig:
    """One switch per pass: True, False, or None for what the level gives."""

    eliminate_noops: bool | None = keyed("remove slices, reshapes and copies that change nothing")
    coalesce_splits: bool | None = keyed("make one split of slices that cut a tensor up")
    fuse_rms_norm: bool | None = keyed("make one operator of an RMS norm written out")
    fuse_add_rms_norm: bool | None = keyed("add a residual inside the norm of the sum")
    fuse_act_mul: bool | None = keyed("make one operator of a gated activation written out")
    fuse_all_reduce_norm: bool | None = keyed("sum over ranks inside the norm of the sum")
    fuse_qk_norm_rope: bool | None = keyed("norm and rotate query and key heads at once")
    fuse_rope_kv_write: bool | None = keyed("rotate inside the KV write")
    fuse_norm_quant: bool | None = keyed("quantise to fp8 inside the norm")
    fuse_act_quant: bool | None = keyed("quantise to fp8 inside the gated activation")
    fuse_attention_quant: bool | None = keyed("quantise to fp8 inside attention")
    fuse_norm_linear: bool | None = keyed("norm inside the projection that reads it")
    fuse_moe_router: bool | None = keyed("make one operator of a router of experts")
    fuse_moe_experts: bool | None = keyed("make one operator of the experts of each row")
    eliminate_clones: bool | None = keyed("read the source of a copy that nobody writes")
    eliminate_dead_code: bool | None = keyed("remove nodes whose results nobody reads")
    restore_in_place: bool | None = keyed("call operators in place where their memory dies")
    donate_buffers: bool | None = keyed("hand results over in buffers that die in the piece")

    def __post_init__(self) -> None:
        for item in fields(self):
            check_kind(f"pass_config.{item.name}", getattr(self, item.name), (bool,))


@dataclass(frozen=True, slots=True)
class DimRange:
    """Declared range of a dynamic dimension, both ends included; `min` is at least 1."""

    min: int = keyed("smallest size", default=1)
    max: int = keyed("largest size", default=1)

    def __post_init__(self) -> None:
        check_count("range minimum", self.min, required=True)
        check_count("range maximum", self.max, required=True)
        if self.min > self.max:
            raise ConfigError(f"range {self.min} to {self.max} is empty", "minimum above maximum")


@dataclass(frozen=True, slots=True)
class DynamicShapes:
    """Ranges of the dynamic step dimensions; a traced range that differs is an error."""

    tokens: DimRange | None = keyed("range of T, the tokens of a step; unset: 1 to token budget")
    seqs: DimRange | None = keyed("range of B, the sequences of a step; unset: 1 to most sequences")

    def __post_init__(self) -> None:
        for item in fields(self):
            check_kind(f"dynamic_shapes.{item.name}", getattr(self, item.name), (DimRange,))


@dataclass(frozen=True, slots=True)
class ArenaConfig:
    """Where a run takes device memory from."""

    enabled: bool | None = unkeyed(
        "memory that can sleep; unset: VCC_USE_CUDA_MEMORY_POOL, which is on by default",
        "tables hold no addresses: memory is a choice of the run",
    )

    def __post_init__(self) -> None:
        check_kind("arena.enabled", self.enabled, (bool,))


@dataclass(frozen=True, slots=True)
class CompilationConfig:
    """What is compiled, where it is cut, and which steps get static graphs.

    Raises:
        ConfigError: a value of the wrong type or out of its own range. Contradictions between
            fields and limits are found by `resolve`.
    """

    level: OptLevel | None = unkeyed(
        "-O level that fills unset fields", "what it fills is in the fields themselves"
    )
    mode: CompileMode | None = keyed("how code is made")
    backend: Backend | None = keyed("who turns a piece into code")
    cuda_graph_mode: GraphMode | None = planned(
        "which steps replay as static graphs", "graphs are built from the same compiled pieces"
    )
    pass_config: PassConfig = keyed("one switch per pass", factory=PassConfig)
    user_passes: tuple[str, ...] | None = keyed("passes of your own: entry points or module:NAME")
    splitting_ops: tuple[str, ...] | None = keyed("ops at which the traced graph is cut")
    use_inductor_graph_partition: bool | None = keyed("leave the cutting to Inductor: one piece")
    compile_sizes: tuple[int, ...] | None = keyed("token counts that get code of their own")
    compile_ranges: tuple[int, ...] | None = keyed("end points of token ranges compiled apart")
    capture_sizes: tuple[int, ...] | None = planned(
        "token counts that get a static graph", "code serves every size of its range"
    )
    cudagraph_specialize_lora: bool | None = planned(
        "graphs for each number of active adapters", "code serves every number of adapters"
    )
    max_capture_size: int | None = unkeyed(
        "largest default capture size", "after resolution it is the last of capture_sizes"
    )
    custom_ops: tuple[str, ...] | None = keyed("all or none, then +op and -op")
    inductor_config: tuple[tuple[str, Scalar], ...] | None = keyed(
        "options passed to Inductor", json="object"
    )
    dynamic_shapes: DynamicShapes = keyed("ranges of T and B", factory=DynamicShapes)
    arena: ArenaConfig = unkeyed(
        "device memory of a run", "memory is a choice of the run", factory=ArenaConfig
    )

    def __post_init__(self) -> None:
        for name, kind in _KINDS:
            if name in ("pass_config", "dynamic_shapes", "arena") and getattr(self, name) is None:
                raise ConfigError(f"{name} cannot be None", "an unset one is an empty object")
            check_kind(name, getattr(self, name), (kind,))
        for name in ("compile_sizes", "compile_ranges", "capture_sizes"):
            check_sizes(name, getattr(self, name))
        for name in ("splitting_ops", "custom_ops", "user_passes"):
            check_texts(name, getattr(self, name))
        _check_max_capture(self.max_capture_size)
        _check_inductor(self.inductor_config)
        if self.inductor_config is not None:
            # Order has no meaning, so equal options are equal values.
            ordered = tuple(sorted(self.inductor_config, key=lambda pair: pair[0]))
            object.__setattr__(self, "inductor_config", ordered)


_KINDS: tuple[tuple[str, type], ...] = (
    ("level", OptLevel),
    ("mode", CompileMode),
    ("backend", Backend),
    ("cuda_graph_mode", GraphMode),
    ("pass_config", PassConfig),
    ("dynamic_shapes", DynamicShapes),
    ("arena", ArenaConfig),
    ("use_inductor_graph_partition", bool),
    ("cudagraph_specialize_lora", bool),
)


def _check_max_capture(value: object) -> None:
    # Zero is let through: whether it contradicts the graph mode is known only to `resolve`.
    if value == 0 and type(value) is int:
        return
    check_count("max_capture_size", value)


def _check_inductor(options: object) -> None:
    if options is None:
        return
    if not isinstance(options, tuple):
        raise ConfigError("inductor_config must be pairs of name and value", f"got {options!r}")
    for name, value in options:
        check_texts("names of inductor_config", (name,))
        check_kind(f"inductor_config.{name}", value, (bool, int, float, str))
        if isinstance(value, str):
            check_printable(f"inductor_config.{name}", value)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            raise ConfigError(f"inductor_config.{name} must be a finite value", f"got {value}")
    names = [name for name, _ in options]
    if len(set(names)) != len(names):
        raise ConfigError("inductor_config names an option twice", f"names: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Sizes of the parallel groups; 1 means not split."""

    tp: int = keyed("tensor parallel ranks", default=1)
    ep: int = keyed("expert parallel ranks", default=1)
    dp: int = keyed("data parallel ranks (with experts they exchange tokens)", default=1)

    def __post_init__(self) -> None:
        for item in fields(self):
            check_count(item.name, getattr(self, item.name), required=True)


QUANTISATIONS = ("compressed-tensors", "fp8")
"""Methods of quantised checkpoints that there are kernels for."""

MODEL_COUNTS = (
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"),
    *("max_loras", "max_lora_rank"),
)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model, in which number format, and the limits of one step.

    `dtype` None takes the checkpoint's; the limits are filled by `resolve_model`.
    """

    source: str = unkeyed(
        "directory, id or module:factory", "the model digest stands for it", default=""
    )
    revision: str | None = unkeyed("revision of a hub id", "the model digest stands for it")
    dtype: Dtype | None = keyed("element type of weights and activations")
    quantisation: str | None = keyed("weight format, as the checkpoint declares it")
    max_model_len: int | None = keyed("most tokens of a sequence, prompt and answer")
    max_num_seqs: int | None = keyed("most sequences in a step")
    max_num_batched_tokens: int | None = keyed("token budget of a step")
    block_size: int | None = planned("tokens of a KV block", "only attention reads the KV layout")
    enable_lora: bool | None = keyed("adapters can be loaded into the model")
    max_loras: int | None = keyed("adapters that a step can hold")
    max_lora_rank: int | None = keyed("largest rank of an adapter")
    lora_target_modules: tuple[str, ...] | None = keyed(
        "projections that adapters may change; unset: all"
    )
    kv_cache_dtype: KvDtype | None = keyed(
        "element type of the KV cache: fp8; unset or auto: the checkpoint's scheme, else dtype",
        quiet=True,
    )

    def __post_init__(self) -> None:
        check_kind("source", self.source, (str,))
        check_kind("revision", self.revision, (str,))
        check_kind("dtype", self.dtype, (Dtype,))
        check_kind("kv_cache_dtype", self.kv_cache_dtype, (KvDtype,))
        check_kind("enable_lora", self.enable_lora, (bool,))
        for name in MODEL_COUNTS:
            check_count(name, getattr(self, name))
        check_texts("lora_target_modules", self.lora_target_modules)
        if not self.source:
            raise ConfigError("no model is named", "source is empty", "name a directory or an id")
        if self.quantisation is not None and self.quantisation not in QUANTISATIONS:
            raise ConfigError(
                f'quantisation "{self.quantisation}" is not supported',
                f"weights are fp32, bf16, fp16, or fp8 by {' or '.join(QUANTISATIONS)}",
            )
