"""Values refuse nonsense when they are made, and importing them costs no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.levels import LEVEL_TABLE, PASS_RULES
from vcc.engine.config.modes import OptLevel
from vcc.engine.config.types import CompilationConfig, DimRange, DynamicShapes, PassConfig


@pytest.mark.parametrize(
    "values",
    [
        {"mode": 3},
        {"backend": "inductor"},
        {"pass_config": None},
        {"dynamic_shapes": None},
        {"capture_sizes": [1, 2]},
        {"compile_sizes": (True,)},
        {"splitting_ops": ("",)},
        {"inductor_config": (("a", 1), ("a", 2))},
        {"inductor_config": (("", 1),)},
        {"inductor_config": {"a": 1}},
    ],
)
def test_wrong_types_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        CompilationConfig(**values)


def test_ranges_start_at_one_and_are_not_empty() -> None:
    for low, high in ((0, 1), (2, 1), (None, 1), (1, True)):
        with pytest.raises(ConfigError):
            DimRange(low, high)
    with pytest.raises(ConfigError, match=r"dynamic_shapes\.tokens must be DimRange"):
        DynamicShapes(tokens=(1, 2))


def test_values_are_frozen_and_hashable() -> None:
    config = CompilationConfig(inductor_config=(("b", 1), ("a", 2)))
    assert hash(config) == hash(CompilationConfig(inductor_config=(("a", 2), ("b", 1))))
    with pytest.raises(FrozenInstanceError):
        config.mode = None


def test_tables_have_one_row_per_choice() -> None:
    assert set(LEVEL_TABLE) == set(OptLevel)
    assert [rule.name for rule in PASS_RULES] == [item.name for item in fields(PassConfig)]


def test_configuration_and_dispatch_import_no_torch() -> None:
    names = ["artifacts", "environment", "keys", "model", "parse", "resolve", "spellings"]
    modules = [f"vcc.engine.config.{name}" for name in names]
    modules += ["vcc.engine.runtime.dispatch", "vcc.engine.runtime.graph_stat"]
    code = f"import {', '.join(modules)}, sys; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
