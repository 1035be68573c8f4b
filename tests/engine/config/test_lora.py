"""What is declared of adapters: defaults, refusals, graphs for each number of them."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.lora import filled
from vcc.engine.config.modes import GraphMode, Platform
from vcc.engine.config.parse import parse_model
from vcc.engine.config.resolve import PlatformFacts, resolve
from vcc.engine.config.types import CompilationConfig, ModelConfig


def test_enabled_adapters_have_limits_and_others_have_none() -> None:
    found = filled(ModelConfig("m", enable_lora=True))
    assert (found.max_loras, found.max_lora_rank, found.lora_target_modules) == (4, 16, None)
    given = ModelConfig("m", enable_lora=True, max_loras=2, max_lora_rank=64)
    assert (filled(given).max_loras, filled(given).max_lora_rank) == (2, 64)
    none = filled(ModelConfig("m"))
    assert (none.enable_lora, none.max_loras, none.max_lora_rank) == (False, None, None)
    assert filled(found) == found


def test_target_modules_are_a_set() -> None:
    found = parse_model(
        {"source": "m", "enable_lora": True, "lora_target_modules": ["v_proj", "q_proj", "v_proj"]}
    )
    assert filled(found).lora_target_modules == ("q_proj", "v_proj")


@pytest.mark.parametrize("field", ["max_loras", "max_lora_rank", "lora_target_modules"])
def test_a_limit_of_adapters_without_adapters_is_refused(field: str) -> None:
    value = ("q_proj",) if field == "lora_target_modules" else 2
    with pytest.raises(ConfigError, match=f"{field} is given, but adapters are not") as caught:
        filled(ModelConfig("m", **{field: value}))
    assert "--enable-lora" in caught.value.hint


@pytest.mark.parametrize(("field", "value"), [("max_loras", 257), ("max_lora_rank", 513)])
def test_limits_beyond_the_kernels_are_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match="too large"):
        filled(ModelConfig("m", enable_lora=True, **{field: value}))


@pytest.mark.parametrize(
    ("platform", "loras", "graphs", "asked", "found"),
    [
        (Platform.CUDA, 4, GraphMode.FULL, None, True),
        (Platform.CPU, 4, GraphMode.FULL, None, False),
        (Platform.CPU, 4, GraphMode.FULL, True, True),
        (Platform.CUDA, 4, GraphMode.FULL, False, False),
        (Platform.CUDA, 4, GraphMode.NONE, True, False),
        (Platform.CUDA, 0, GraphMode.FULL, True, False),
        (Platform.CUDA, 0, GraphMode.FULL, None, False),
    ],
)
def test_there_are_graphs_for_each_number_of_adapters_unless_told_otherwise(
    platform: Platform, loras: int, graphs: GraphMode, asked: bool | None, found: bool
) -> None:
    facts = PlatformFacts(platform, 8, 64, max_loras=loras)
    asking = CompilationConfig(cuda_graph_mode=graphs, cudagraph_specialize_lora=asked)
    resolved = resolve(asking, facts)
    assert resolved.config.cudagraph_specialize_lora is found
    told = [one for one in resolved.reasons if one.field == "cudagraph_specialize_lora"]
    assert bool(told) == (asked is not found)
