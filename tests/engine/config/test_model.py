"""Model limits, dtypes and parallel layouts."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError, DeviceError
from vcc.engine.config.model import check_parallel, resolve_model
from vcc.engine.config.modes import Dtype, Platform
from vcc.engine.config.types import ModelConfig, ParallelConfig


def settle(model: ModelConfig, dtype: Dtype = Dtype.BF16, where: Platform = Platform.CPU) -> object:
    return resolve_model(model, positions=4096, dtype=dtype, platform=where)


def test_limits_are_filled_and_kept() -> None:
    found = settle(ModelConfig("demo", max_num_seqs=4))
    assert found == ModelConfig("demo", None, Dtype.BF16, None, 4096, 4, 2048, 16, False)


def test_an_fp16_checkpoint_runs_as_fp32_on_cpu_unless_fp16_was_asked_for() -> None:
    assert settle(ModelConfig("demo"), Dtype.FP16).dtype is Dtype.FP32
    assert settle(ModelConfig("demo"), Dtype.FP16, Platform.CUDA).dtype is Dtype.FP16
    with pytest.raises(DeviceError, match="fp16 is not possible on cpu") as caught:
        settle(ModelConfig("demo", dtype=Dtype.FP16))
    assert "bf16" in caught.value.hint


def test_a_length_beyond_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="made for 4096 positions"):
        settle(ModelConfig("demo", max_model_len=5000))


@pytest.mark.parametrize(
    "values",
    [
        {"max_num_seqs": 0},
        {"max_model_len": -1},
        {"block_size": True},
        {"max_num_batched_tokens": 1.5},
        {"dtype": "bf16"},
        {"quantisation": "awq"},
        {"source": ""},
    ],
)
def test_bad_values(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ModelConfig(**({"source": "demo"} | values))


@pytest.mark.parametrize("name", ["tp", "ep", "dp"])
def test_layouts_that_cannot_be_built_are_refused_by_name(name: str) -> None:
    check_parallel(ParallelConfig())
    with pytest.raises(ConfigError, match=f"{name} = 2 is not supported yet"):
        check_parallel(ParallelConfig(**{name: 2}), experts=8)


@pytest.mark.parametrize(
    ("experts", "why"), [(0, "it has no experts"), (7, "its 7 experts do not divide by 2")]
)
def test_a_layout_that_the_experts_do_not_have_is_refused(experts: int, why: str) -> None:
    with pytest.raises(ConfigError, match="ep = 2 does not fit the model") as caught:
        check_parallel(ParallelConfig(ep=2), experts)
    assert caught.value.why == why
