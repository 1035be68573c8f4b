"""`quantization_config` of a `config.json` into a QuantSpec, or the reason why it is refused.

Torch-free. What is not known to leave the arithmetic alone is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.quant.compressed import compressed_tensors
from vcc.engine.models.quant.fields import refused
from vcc.engine.models.quant.native_fp8 import native_fp8
from vcc.engine.models.quant.spec import QuantSpec

Config = Mapping[str, Any]

METHODS = {"compressed-tensors": compressed_tensors, "fp8": native_fp8}

REFUSED = {
    "aqlm": "its weights are sums of entries of codebooks",
    "awq": "its weights are 4-bit integers, packed",
    "bitsandbytes": "its weights are 4-bit codes or 8-bit integers with outliers apart",
    "fbgemm_fp8": "its activations are clamped to a bound of their own before they are quantised",
    "gguf": "its weights are blocks of integers, packed",
    "gptq": "its weights are packed integers, with a zero point for each group",
    "higgs": "its weights are entries of a grid, packed",
    "modelopt": "its weights are NVFP4 or fp8 under other names",
    "mxfp4": "its weights are 4-bit floats with shared exponents",
    "nvfp4": "its weights are 4-bit floats with fp8 scales",
    "quark": "its weights are in formats of their own",
    "torchao": "its weights are subclasses of tensors, pickled",
}
"""Methods by their reason; one that is not here is refused too."""


def quant_of(config: Config) -> QuantSpec | None:
    """How a checkpoint is quantised; None where it is not.

    Raises:
        ModelError: in a way that there are no kernels for.
    """
    declared = config.get("quantization_config") or config.get("compression_config")
    if not declared:
        return None
    if not isinstance(declared, Mapping):
        raise refused("quantization_config is no object", f"it is {declared!r:.60}")
    method = str(declared.get("quant_method") or "unnamed method")
    if method in METHODS:
        return METHODS[method](declared)
    raise ModelError(
        f"quantised checkpoint ({method:.40}) is not supported",
        REFUSED.get(method, "there are no kernels for its weights"),
        f"supported: {', '.join(METHODS)} (float8_e4m3fn), or the unquantised checkpoint",
    )
