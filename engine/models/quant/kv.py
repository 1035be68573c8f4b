"""A KV cache in fp8: its scales in a checkpoint, and what cannot have one. Torch-free.

Keys and values lie in the cache as float8_e4m3fn over a scale, one of a layer's keys and one of its
values. The scales are 1 unless the checkpoint has them:

compressed-tensors   kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor, dynamic: false}
fp8                  kv_cache_scheme: static
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.config.modes import KvDtype, Platform
from vcc.engine.config.target import Target
from vcc.engine.models.quant.compressed import SCHEME_FIELDS
from vcc.engine.models.quant.fields import mapping, must_be, only, refused
from vcc.engine.models.quant.target import check_target

NAMES = (
    ("k_scale", "v_scale"),
    ("k_proj.output_scale", "v_proj.output_scale"),
    ("k_proj.k_scale", "v_proj.v_scale"),
    ("attn.k_scale", "attn.v_scale"),
)
"""How published checkpoints call the scales of a layer, below its `self_attn`."""

SCHEME = "kv_cache_scheme"


@dataclass(frozen=True, slots=True)
class KvSpec:
    """A cache in float8_e4m3fn.

    Attributes:
        scales: names of a layer's two scales below its `self_attn`; empty: both are 1.
    """

    scales: tuple[str, ...] = ()


def kv_of(config: Mapping[str, Any]) -> KvSpec | None:
    """The cache that a checkpoint has scales for; None where it has none.

    Raises:
        ModelError: a scheme that there are no kernels for.
    """
    declared = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(declared, Mapping) or not (scheme := declared.get(SCHEME)):
        return None
    if declared.get("quant_method") == "fp8":
        must_be("quantization_config", declared, SCHEME, "static")
    else:
        _check_scheme(mapping(SCHEME, scheme))
    return KvSpec(NAMES[0])


def named_in(kv: KvSpec, layers: int, tensors: Container[str]) -> KvSpec:
    """The same with the names that these tensors have."""
    homes = [f"model.layers.{index}.self_attn" for index in range(layers)]
    pairs = (
        pair for home in homes for pair in NAMES for name in pair if f"{home}.{name}" in tensors
    )
    return KvSpec(next(pairs, kv.scales))


def _check_scheme(scheme: Mapping[str, Any]) -> None:
    only(SCHEME, scheme, SCHEME_FIELDS)
    must_be(SCHEME, scheme, "num_bits", 8)
    must_be(SCHEME, scheme, "type", "float")
    if must_be(SCHEME, scheme, "dynamic", False, True, "local"):
        raise refused(
            f"{SCHEME} that is dynamic is not supported",
            "a scale of the step's own would change what earlier steps have stored",
        )
    must_be(SCHEME, scheme, "symmetric", True)
    must_be(SCHEME, scheme, "strategy", "tensor")
    for name in ("group_size", "block_structure"):
        must_be(SCHEME, scheme, name, None)
    must_be(SCHEME, scheme, "actorder", None, False)


def check_cache(kv_cache: KvDtype | None, target: Target, *, decoder: bool) -> None:
    """Refuse a cache in fp8 where there can be none.

    Raises:
        ConfigError: the model is no decoder.
        DeviceError: the GPU has no fp8.
    """
    if kv_cache is None:
        return
    if not decoder:
        raise ConfigError(
            f"kv_cache_dtype {kv_cache.value} does not go with this model",
            "a plain forward has no KV cache",
            "leave kv_cache_dtype out",
        )
    check_target("keys and values", target, "leave kv_cache_dtype out")


def check_cache_compiled(kv_cache: KvDtype | None, *, recorded: bool) -> None:
    """Refuse to record an eager step over a cache in fp8.

    Raises:
        ConfigError: it is to be recorded.
    """
    if kv_cache is not None and recorded:
        raise ConfigError(
            f"kv_cache_dtype {kv_cache.value} goes with compiled code on a GPU",
            "a recording has its cache in the model's dtype",
            "use --compile vcc",
        )


def check_cache_interpretable(kv_cache: KvDtype | None, platform: Platform) -> None:
    """Refuse to check a step over a cache in fp8 by the interpreter.

    Raises:
        UsageError: what is rounded to fp8 in another order differs by a step of it.
    """
    if kv_cache is not None and platform is Platform.CUDA:
        raise UsageError(
            f"--interpret does not take kv_cache_dtype {kv_cache.value}",
            "a rounding error before a value is stored becomes a step of fp8, which no bound of"
            " fp32 tells from a fault",
            "check the step without it: the code around its cache is the same",
        )
