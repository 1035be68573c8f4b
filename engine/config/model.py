"""Limits and number format of a model: defaults, and refusals of what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vcc.cache.errors import ConfigError, DeviceError

from .lora import filled
from .modes import Dtype, KvDtype, Platform
from .types import ModelConfig, ParallelConfig

DEFAULT_SEQS = 128
DEFAULT_TOKENS = 2048
DEFAULT_BLOCK = 16

DTYPES_OF: Mapping[Platform, tuple[Dtype, ...]] = {
    Platform.CPU: (Dtype.FP32, Dtype.BF16),
    Platform.CUDA: (Dtype.FP32, Dtype.BF16, Dtype.FP16),
}


def resolve_model(
    model: ModelConfig,
    *,
    positions: int,
    dtype: Dtype,
    platform: Platform,
    usual: int = 0,
    quantisation: str | None = None,
    kv_cache: KvDtype | None = None,
) -> ModelConfig:
    """Fill the limits of a step and the dtype.

    Args:
        model: what the user asked for.
        positions: most positions the model was made for (`max_position_embeddings`).
        dtype: the checkpoint's dtype, used when none was asked for.
        platform: where the step runs; CPU kernels exist for fp32 and bf16, so a checkpoint in
            fp16 runs there as fp32.
        usual: `max_model_len` where none was asked for; 0 means `positions`.
        quantisation: the method of the checkpoint; None where it is not quantised.
        kv_cache: the element type that the checkpoint has scales for; None where it has none.

    Raises:
        ConfigError: a length above `positions`, or another quantisation than the checkpoint's.
        DeviceError: a dtype the platform has no kernels for.
    """
    length = model.max_model_len or usual or positions
    if length > positions:
        raise ConfigError(
            f"max_model_len {length} is too long",
            f"the model was made for {positions} positions",
            f"use at most {positions}",
        )
    if model.quantisation not in (None, quantisation):
        raise ConfigError(
            f'quantisation "{model.quantisation}" is not that of the checkpoint',
            f"which is {quantisation or 'not quantised'}, and weights are used as they are stored",
            "leave quantisation out, or give the quantised checkpoint",
        )
    return replace(
        filled(model),
        quantisation=quantisation,
        dtype=_dtype(model.dtype, dtype, platform),
        kv_cache_dtype=model.kv_cache_dtype or kv_cache,
        max_model_len=length,
        max_num_seqs=model.max_num_seqs or DEFAULT_SEQS,
        max_num_batched_tokens=model.max_num_batched_tokens or DEFAULT_TOKENS,
        block_size=model.block_size or DEFAULT_BLOCK,
    )


def _dtype(asked: Dtype | None, stored: Dtype, platform: Platform) -> Dtype:
    able = DTYPES_OF[platform]
    if asked is None:
        return stored if stored in able else Dtype.FP32
    if asked not in able:
        names = ", ".join(one.value for one in able)
        raise DeviceError(
            f"dtype {asked.value} is not possible on {platform.value}",
            f"kernels there exist for {names}",
            f"use --dtype {able[-1].value}",
        )
    return asked


def check_parallel(parallel: ParallelConfig, experts: int = 0) -> None:
    """Refuse layouts that the model does not have, or that this version cannot build.

    Args:
        parallel: the layout.
        experts: of a layer of the model; 0 where it has none.

    Raises:
        ConfigError: experts that do not divide, or any size above 1.
    """
    if parallel.ep > 1 and (not experts or experts % parallel.ep):
        raise ConfigError(
            f"ep = {parallel.ep} does not fit the model",
            f"its {experts} experts do not divide by {parallel.ep}"
            if experts
            else "it has no experts",
            "leave ep at 1",
        )
    sizes = {"tp": parallel.tp, "ep": parallel.ep, "dp": parallel.dp}
    for name, size in sizes.items():
        if size > 1:
            raise ConfigError(
                f"{name} = {size} is not supported yet",
                "this version runs a model on one device",
                f"leave {name} at 1",
            )
