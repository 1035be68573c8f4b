"""What a KV cache in fp8 may not be: every refusal names the field or the tensor."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES, make_checkpoint
from support.flow import ask
from support.fp8_checkpoints import LAYOUTS, altered, make_fp8_checkpoint, scheme
from support.kv_fp8 import SCALES, add_scales

from vcc.cache.errors import ConfigError, DeviceError, ModelError, UsageError
from vcc.engine.config.modes import KvDtype, Platform
from vcc.engine.config.parse import parse_model
from vcc.engine.config.target import Target
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.quant.kv import (
    NAMES,
    check_cache,
    check_cache_compiled,
    check_cache_interpretable,
)
from vcc.engine.models.source import open_source
from vcc.engine.request import look_up, settle


def spec(kv: Any, layout: str = "tensor-static") -> Any:
    declared = copy.deepcopy(LAYOUTS[layout]) | {"kv_cache_scheme": kv}
    sizes = {**SIZES, **OWN_SIZES["llama"]}
    config = {"architectures": [ARCHITECTURES["llama"]], **sizes, "quantization_config": declared}
    return spec_of(config).kv


def test_a_scheme_gives_a_cache_with_scales_and_none_gives_none() -> None:
    assert spec(scheme("tensor", False)).scales == NAMES[0]
    assert spec("static", "fp8-static").scales == NAMES[0]
    for nothing in (None, {}, False):
        assert spec(nothing) is None


BAD = {
    "int": ({**scheme("tensor", False), "type": "int"}, "kv_cache_scheme.type 'int'"),
    "4 bits": ({**scheme("tensor", False), "num_bits": 4}, "kv_cache_scheme.num_bits 4"),
    "dynamic": (scheme("tensor", True), "kv_cache_scheme that is dynamic"),
    "channel": (scheme("channel", False), "kv_cache_scheme.strategy 'channel'"),
    "head": (scheme("attn_head", False), "kv_cache_scheme.strategy 'attn_head'"),
    "zero point": ({**scheme("tensor", False), "symmetric": False}, "symmetric False"),
    "group": ({**scheme("tensor", False), "group_size": 64}, "group_size 64"),
    "unknown": ({**scheme("tensor", False), "rotation": "hadamard"}, "kv_cache_scheme.rotation"),
    "text": ("static", "kv_cache_scheme is no object"),
}


@pytest.mark.parametrize("name", BAD)
def test_schemes_without_kernels_are_refused_by_field(name: str) -> None:
    declared, message = BAD[name]
    with pytest.raises(ModelError, match=message) as caught:
        spec(declared)
    assert int(caught.value.exit) == 2


def test_the_short_form_of_the_other_layout_is_static_or_refused() -> None:
    with pytest.raises(ModelError, match="kv_cache_scheme 'dynamic'"):
        spec("dynamic", "fp8-static")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_fp8_checkpoint(tmp_path_factory.mktemp("kv"), "llama", "tensor-static")
    return add_scales(directory, SCALES)


V_SCALE = "model.layers.1.self_attn.v_scale"
WRONG = {
    "missing": (None, "v_scale is missing"),
    "of heads": (torch.ones(2), r"v_scale is \[2\], the config says \[1\]"),
    "int": (torch.ones(1, dtype=torch.int32), "v_scale is int32"),
    "zero": (torch.zeros(1), "v_scale has a scale that is zero"),
    "negative": (torch.tensor([-0.1]), "v_scale has a scale that is negative"),
    "nan": (torch.tensor([float("nan")]), "v_scale has a scale that is NaN"),
    "infinite": (torch.tensor([float("inf")]), "v_scale has a scale that is infinite"),
    "too large": (torch.tensor([1e37]), "so large that 448 of it are infinite"),
}


@pytest.mark.parametrize("name", WRONG)
def test_scales_that_are_none_are_refused(name: str, checkpoint: Path, tmp_path: Path) -> None:
    value, message = WRONG[name]
    with pytest.raises(ModelError) as caught:
        open_source(str(altered(checkpoint, tmp_path, {V_SCALE: value})))
    assert re.search(message, str(caught.value)), caught.value
    assert int(caught.value.exit) == 2


def test_scales_without_a_scheme_are_not_part_of_the_model(
    checkpoint: Path, tmp_path: Path
) -> None:
    place = altered(checkpoint, tmp_path, {V_SCALE: torch.ones(1)})
    config = json.loads((place / "config.json").read_text())
    del config["quantization_config"]["kv_cache_scheme"]
    (place / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="k_scale is not part of the model"):
        open_source(str(place))


@pytest.mark.parametrize(
    "text", ["fp8_e5m2", "int8", "nvfp4", "bf16", "float16", "fp16", "fp9", "", "fp8-e5m2"]
)
def test_other_caches_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="kv_cache_dtype") as caught:
        parse_model({"source": "demo", "kv_cache_dtype": text})
    assert int(caught.value.exit) == 2
    assert "fp8" in caught.value.hint


@pytest.mark.parametrize("text", ["fp8", "FP8", "fp8_e4m3", "fp8-e4m3", "float8_e4m3fn"])
def test_names_of_the_cache_that_there_is(text: str) -> None:
    found = parse_model({"source": "demo", "kv_cache_dtype": text})
    assert found.kv_cache_dtype is KvDtype.FP8
    assert parse_model({"source": "demo", "kv_cache_dtype": "auto"}).kv_cache_dtype is None


@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
def test_devices_without_the_type_are_refused(target: str) -> None:
    with pytest.raises(DeviceError, match=f"{target} has no fp8") as caught:
        settle(ask("demo", target=target, kv_cache_dtype="fp8"))
    assert int(caught.value.exit) == 3
    assert "kv_cache_dtype" in caught.value.hint


def test_plain_forwards_recordings_and_the_interpreter_are_refused() -> None:
    fp8 = KvDtype.FP8
    with pytest.raises(ConfigError, match="does not go with this model"):
        check_cache(fp8, Target.parse("cpu"), decoder=False)
    with pytest.raises(ConfigError, match="compiled code on a GPU"):
        check_cache_compiled(fp8, recorded=True)
    with pytest.raises(UsageError, match="--interpret"):
        check_cache_interpretable(fp8, Platform.CUDA)
    check_cache(None, Target.parse("sm_80"), decoder=False)
    check_cache_compiled(None, recorded=True)
    check_cache_compiled(fp8, recorded=False)
    check_cache_interpretable(None, Platform.CUDA)


def test_a_checkpoint_with_scales_is_one_request_however_it_is_asked_for(
    checkpoint: Path, tmp_path: Path
) -> None:
    """`auto` is what the checkpoint says; where it says nothing, the two are two."""
    asked = [ask(checkpoint, kv_cache_dtype=one) for one in (None, "auto", "fp8")]
    keys = {look_up(settle(one))[0].digest for one in asked}
    assert len(keys) == 1
    plain = make_checkpoint(tmp_path / "plain", "llama", dtype="bfloat16")
    keys = {look_up(settle(ask(plain, kv_cache_dtype=one)))[0].digest for one in ("auto", "fp8")}
    assert len(keys) == 2
