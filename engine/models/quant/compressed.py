"""`quantization_config` of the compressed-tensors layout, as llm-compressor writes it. Torch-free.

format: float-quantized
config_groups: {group_0: {targets: [Linear], weights: SCHEME, input_activations: SCHEME}}
ignore: [lm_head]
kv_cache_scheme: null, or SCHEME
SCHEME: {num_bits: 8, type: float, strategy, symmetric, dynamic, group_size, block_structure, …}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.models.quant.fields import mapping, must_be, names, only, refused
from vcc.engine.models.quant.spec import BLOCK, LINEAR, QuantSpec

PLACE = "quantization_config"
FORMAT = "float-quantized"

TOP = (
    *("quant_method", "format", "config_groups", "ignore", "kv_cache_scheme", "version"),
    *("quantization_status", "global_compression_ratio", "sparsity_config"),
)
GROUP = ("targets", "weights", "input_activations", "output_activations", "format")
SCHEME_FIELDS = (
    *("num_bits", "type", "strategy", "symmetric", "dynamic", "group_size", "block_structure"),
    *("actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"),
)
"""Fields that are known; observers and dtypes of scales say how a checkpoint was made."""

ACTIVATIONS = {("tensor", False): "static", ("token", True): "token", ("group", True): "block"}
"""(strategy, dynamic) of the activations that there are kernels for."""

ONE_SCALE_A_STEP = (
    "one scale for all rows of a step would make a row's result depend on its neighbours"
)


def compressed_tensors(declared: Mapping[str, Any]) -> QuantSpec:
    """The QuantSpec of a config.

    Raises:
        ModelError: a format, strategy or setting that there are no kernels for.
    """
    only(PLACE, declared, TOP)
    _check_format(declared)
    group = _only_group(declared)
    weights, activations = _weights(group), _activations(group)
    if (weights == "block") != (activations == "block"):
        raise refused(
            f"weights by {weights} with activations by {activations} are not supported",
            "block weights go with activations in groups, and the others with a scale a row",
        )
    ignore = names(f"{PLACE}.ignore", declared.get("ignore"))
    targets = names(f"{PLACE}.targets", group.get("targets", [LINEAR]))
    return QuantSpec("compressed-tensors", weights, activations, targets, ignore)


def _check_format(declared: Mapping[str, Any]) -> None:
    must_be(PLACE, declared, "format", FORMAT)
    must_be(PLACE, declared, "quantization_status", "compressed", "frozen")
    sparse = declared.get("sparsity_config") or {}
    must_be(f"{PLACE}.sparsity_config", mapping("sparsity_config", sparse), "format", "dense")


def _only_group(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    groups = mapping(f"{PLACE}.config_groups", declared.get("config_groups"))
    if len(groups) != 1:
        raise refused(
            f"{len(groups)} config_groups are not supported", "all projections have one scheme here"
        )
    name, found = next(iter(groups.items()))
    place = f"config_groups.{name:.40}"
    group = mapping(place, found)
    only(place, group, GROUP)
    must_be(place, group, "format", FORMAT, None)
    if group.get("output_activations"):
        raise refused(f"{place}.output_activations are not supported", "results are not quantised")
    return group


def _scheme(place: str, value: Any) -> Mapping[str, Any]:
    found = mapping(place, value)
    only(place, found, SCHEME_FIELDS)
    must_be(place, found, "num_bits", 8)
    must_be(place, found, "type", "float")
    must_be(place, found, "symmetric", True)
    must_be(place, found, "actorder", None, False)
    return found


def _weights(group: Mapping[str, Any]) -> str:
    place = "weights"
    found = _scheme(place, group.get("weights"))
    must_be(place, found, "dynamic", False)
    strategy = must_be(place, found, "strategy", "tensor", "channel", "block")
    if strategy == "block":
        must_be(place, found, "block_structure", [BLOCK, BLOCK], f"{BLOCK}x{BLOCK}")
        must_be(place, found, "group_size", None, BLOCK)
    else:
        must_be(place, found, "group_size", None)
    return str(strategy)


def _activations(group: Mapping[str, Any]) -> str:
    place = "input_activations"
    if not group.get(place):
        raise refused(
            "fp8 weights with activations that are not quantised are not supported",
            "the product is one of fp8 values",
        )
    found = _scheme(place, group[place])
    dynamic = must_be(place, found, "dynamic", False, True)
    strategy = must_be(place, found, "strategy", "tensor", "token", "group")
    known = ACTIVATIONS.get((strategy, dynamic))
    if known is None:
        kind = "dynamic" if dynamic else "static"
        why = ONE_SCALE_A_STEP if (strategy, dynamic) == ("tensor", True) else ""
        raise refused(f"{kind} activations by {strategy} are not supported", why)
    if known == "block":
        must_be(place, found, "group_size", BLOCK)
    else:
        must_be(place, found, "group_size", None)
    return known
