"""`quantization_config` with `quant_method` `fp8`, as transformers writes it. Torch-free.

weight_block_size [128, 128], activation_scheme dynamic    block weights, weight_scale_inv
no weight_block_size, activation_scheme static or dynamic  one scale a tensor, weight_scale
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.models.quant.fields import must_be, names, only
from vcc.engine.models.quant.patterns import UNDER
from vcc.engine.models.quant.spec import BLOCK, LINEAR, QuantSpec

PLACE = "quantization_config"
KNOWN = (
    *("quant_method", "fmt", "activation_scheme", "weight_block_size", "dequantize"),
    *("modules_to_not_convert", "ignored_layers", "kv_cache_scheme"),
)
HEAD = "lm_head"
"""Never converted, whether the config says so or not."""


def native_fp8(declared: Mapping[str, Any]) -> QuantSpec:
    """The QuantSpec of a config.

    Raises:
        ModelError: a setting that there are no kernels for.
    """
    only(PLACE, declared, KNOWN)
    must_be(PLACE, declared, "fmt", "e4m3", "float8_e4m3fn", None)
    must_be(PLACE, declared, "dequantize", False, None)
    kept = (
        *names(f"{PLACE}.modules_to_not_convert", declared.get("modules_to_not_convert")),
        *names(f"{PLACE}.ignored_layers", declared.get("ignored_layers")),
    )
    ignore = tuple(f"{UNDER}{name}" for name in dict.fromkeys((*kept, HEAD)))
    block = must_be(PLACE, declared, "weight_block_size", None, [BLOCK, BLOCK])
    if block is not None:
        must_be(PLACE, declared, "activation_scheme", "dynamic")
        return QuantSpec("fp8", "block", "block", (LINEAR,), ignore, "weight_scale_inv")
    moving = must_be(PLACE, declared, "activation_scheme", "dynamic", "static")
    activations = "static" if moving == "static" else "token"
    return QuantSpec("fp8", "tensor", activations, (LINEAR,), ignore)
