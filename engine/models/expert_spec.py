"""Experts of a decoder: how many, how wide, in which layers. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import flag, mend, name_in, positive, whole

Config = Mapping[str, Any]

MOST_EXPERTS = 4096
"""Far above any model, low enough that a hostile config cannot fill memory with names."""


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """The experts of a decoder's sparse layers.

    Attributes:
        count: experts of a layer.
        top_k: experts of a token.
        width: intermediate size of an expert.
        renormalise: the weights of a token's experts are divided by their sum.
        shared: intermediate size of the expert that every token has; 0 means none.
        layers: for each layer whether it has experts.
        stacked: the checkpoint stores the experts of a layer as one tensor.
    """

    count: int
    top_k: int
    width: int
    renormalise: bool
    shared: int
    layers: tuple[bool, ...]
    stacked: bool = False


def mixtral_experts(config: Config, layers: int) -> ExpertSpec | None:
    """Every layer has experts of `intermediate_size`."""
    return _checked(
        config,
        ExpertSpec(
            count=_count(config, "num_local_experts", 8),
            top_k=positive(config, "num_experts_per_tok", 2),
            width=positive(config, "intermediate_size"),
            renormalise=True,
            shared=0,
            layers=(True,) * layers,
        ),
    )


def qwen_experts(
    count: int, top_k: int, width: int, shared: int
) -> Callable[[Config, int], ExpertSpec | None]:
    """A rule with these defaults: dense layers by `mlp_only_layers` and `decoder_sparse_step`."""

    def rule(config: Config, layers: int) -> ExpertSpec | None:
        sparse = _sparse_layers(config, layers)
        if not any(sparse) or not _count(config, "num_experts", count):
            return None
        return _checked(
            config,
            ExpertSpec(
                count=_count(config, "num_experts", count),
                top_k=positive(config, "num_experts_per_tok", top_k),
                width=positive(config, "moe_intermediate_size", width),
                renormalise=flag(config, "norm_topk_prob", False),
                shared=shared and positive(config, "shared_expert_intermediate_size", shared),
                layers=sparse,
            ),
        )

    return rule


def _count(config: Config, name: str, default: int) -> int:
    """Qwen3-MoE and Mixtral write either name."""
    given = next((n for n in (name, "num_experts", "num_local_experts") if n in config), name)
    return whole(config, given, default, MOST_EXPERTS)


def _sparse_layers(config: Config, layers: int) -> tuple[bool, ...]:
    step = positive(config, "decoder_sparse_step", 1)
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(type(i) is not int or i < 0 for i in dense):
        why = f"it is {dense!r:.80}"
        raise ModelError(
            "mlp_only_layers is no list of layer numbers", why, mend("mlp_only_layers")
        )
    return tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))


def _checked(config: Config, spec: ExpertSpec) -> ExpertSpec:
    name_in(config, "hidden_act", "silu", ("silu", "swish"))  # of the experts' kernels
    if spec.top_k > spec.count:
        raise ModelError(
            "num_experts_per_tok is above the number of experts",
            f"{spec.top_k} of {spec.count}",
            mend("num_experts_per_tok"),
        )
    return spec
