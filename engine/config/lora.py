"""What is declared of adapters (LoRA): defaults, and refusals of what says nothing."""

from __future__ import annotations

from dataclasses import replace

from vcc.cache.errors import ConfigError

from .modes import GraphMode, Platform
from .resolved import State
from .types import ModelConfig

DEFAULT_LORAS = 4
DEFAULT_RANK = 16
MOST_LORAS, HIGHEST_RANK = 256, 512

ONE_FOR_ALL = "on the CPU operators look at the rows' adapters: one graph serves any number"

LIMITS = ("max_loras", "max_lora_rank", "lora_target_modules")
"""Fields that say something of adapters only where there are any."""


def filled(model: ModelConfig) -> ModelConfig:
    """The configuration with limits of adapters where they are enabled.

    Raises:
        ConfigError: limits without adapters, or beyond what kernels take.
    """
    if not model.enable_lora:
        said = [name for name in LIMITS if getattr(model, name) is not None]
        if said:
            raise ConfigError(
                f"{said[0]} is given, but adapters are not enabled",
                "code without adapters has no such limit",
                "add --enable-lora, or leave it out",
            )
        return replace(model, enable_lora=False)
    loras, rank = model.max_loras or DEFAULT_LORAS, model.max_lora_rank or DEFAULT_RANK
    for name, value, most in (
        ("max_loras", loras, MOST_LORAS),
        ("max_lora_rank", rank, HIGHEST_RANK),
    ):
        if value > most:
            raise ConfigError(
                f"{name} {value} is too large", f"kernels take {most}", f"use at most {most}"
            )
    targets = model.lora_target_modules
    ordered = tuple(sorted(set(targets))) if targets else None
    return replace(model, max_loras=loras, max_lora_rank=rank, lora_target_modules=ordered)


def lora_graphs(state: State) -> State:
    """Whether there are graphs for each number of active adapters."""
    if not state.facts.max_loras:
        return state.put("cudagraph_specialize_lora", False, "adapters are not enabled")
    if state.graphs is GraphMode.NONE:
        return state.put("cudagraph_specialize_lora", False, "graphs are off")
    if state.facts.platform is Platform.CPU:
        return state.fill("cudagraph_specialize_lora", False, ONE_FOR_ALL)
    return state.fill("cudagraph_specialize_lora", True, "default")
