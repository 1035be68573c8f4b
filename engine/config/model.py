"""Limits and number format of a model: defaults, and refusals of what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vcc.cache.errors import ConfigError, DeviceError

from .modes import Dtype, Platform
from .types import ModelConfig, ParallelConfig

DEFAULT_SEQS = 128
DEFAULT_TOKENS = 2048
DEFAULT_BLOCK = 16

DTYPES_OF: Mapping[Platform, tuple[Dtype, ...]] = {
    Platform.CPU: (Dtype.FP32, Dtype.BF16),
    Platform.CUDA: (Dtype.FP32, Dtype.BF16, Dtype.FP16),
}


def resolve_model(
    model: ModelConfig, *, positions: int, dtype: Dtype, platform: Platform
) -> ModelConfig:
    """Fill the limits of a step and the dtype.

    Args:
        model: what the user asked for.
        positions: most positions the model was made for (`max_position_embeddings`).
        dtype: the checkpoint's dtype, used when none was asked for.
        platform: where the step runs; CPU kernels exist for fp32 and bf16, so a checkpoint in
            fp16 runs there as fp32.

    Raises:
        ConfigError: a length above `positions`.
        DeviceError: a dtype the platform has no kernels for.
    """
    length = model.max_model_len or positions
    if length > positions:
        raise ConfigError(
            f"max_model_len {length} is too long",
            f"the model was made for {positions} positions",
            f"use at most {positions}",
        )
    return replace(
        model,
        dtype=_dtype(model.dtype, dtype, platform),
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


def check_parallel(parallel: ParallelConfig) -> None:
    """Refuse layouts that this version cannot build.

    Raises:
        ConfigError: any size above 1.
    """
    sizes = {"tp": parallel.tp, "ep": parallel.ep, "dp": parallel.dp}
    for name, size in sizes.items():
        if size > 1:
            raise ConfigError(
                f"{name} = {size} is not supported yet",
                "this version runs a model on one device",
                f"leave {name} at 1",
            )
