"""What an fp8 checkpoint may not be: every refusal names the field or the tensor, and exits 2."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from support.fp8_checkpoints import BLOCK_SIZES, LAYOUTS, altered, make_fp8_checkpoint, scheme

from vcc.cache.errors import ConfigError, DeviceError, ModelError, UsageError
from vcc.engine.config.target import Target
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.bindings import expected_tensors
from vcc.engine.models.quant.parse import METHODS, REFUSED
from vcc.engine.models.quant.patterns import matches
from vcc.engine.models.quant.target import check_compiled, check_interpretable, check_target
from vcc.engine.models.source import open_source

Change = Callable[[dict[str, Any]], Any]


def spec(declared: dict[str, Any], arch: str = "llama", **fields: Any) -> Any:
    sizes = {**SIZES, **OWN_SIZES[arch], **fields}
    return spec_of(
        {"architectures": [ARCHITECTURES[arch]], **sizes, "quantization_config": declared}
    )


def group(declared: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = declared["config_groups"]["group_0"]
    return found


@pytest.mark.parametrize("method", [*REFUSED, "hqq"])
def test_other_methods_are_refused_by_name_with_the_reason(method: str) -> None:
    with pytest.raises(ModelError, match=rf"quantised checkpoint \({method}\)") as caught:
        spec({"quant_method": method})
    assert int(caught.value.exit) == 2
    assert caught.value.why
    assert all(name in caught.value.hint for name in METHODS)


SCHEMES: list[tuple[str, str, Change]] = [
    ("format", "format 'pack-quantized'", lambda d: d.update(format="pack-quantized")),
    ("fp4", "format 'nvfp4-pack-quantized'", lambda d: d.update(format="nvfp4-pack-quantized")),
    ("two groups", "2 config_groups", lambda d: d["config_groups"].update(b=group(d))),
    ("no groups", "config_groups is no object", lambda d: d.update(config_groups=None)),
    ("int8", "weights.type 'int'", lambda d: group(d)["weights"].update(type="int")),
    ("4 bits", "weights.num_bits 4", lambda d: group(d)["weights"].update(num_bits=4)),
    ("strategy", "weights.strategy 'row'", lambda d: group(d)["weights"].update(strategy="row")),
    ("order", "weights.actorder 'group'", lambda d: group(d)["weights"].update(actorder="group")),
    ("zero", "weights.symmetric False", lambda d: group(d)["weights"].update(symmetric=False)),
    ("group size", "weights.group_size 64", lambda d: group(d)["weights"].update(group_size=64)),
    ("true", "weights.num_bits True", lambda d: group(d)["weights"].update(num_bits=True)),
    ("new field", "weights.rotation", lambda d: group(d)["weights"].update(rotation="hadamard")),
    ("transform", "transform_config", lambda d: d.update(transform_config={"config_groups": {}})),
    ("sparse", "sparsity_config.format", lambda d: d.update(sparsity_config={"format": "2:4"})),
    ("weight only", "not quantised are not", lambda d: group(d).update(input_activations=None)),
    (
        "dynamic by tensor",
        "dynamic activations by tensor",
        lambda d: group(d).update(input_activations=scheme("tensor", True)),
    ),
    (
        "results",
        "output_activations",
        lambda d: group(d).update(output_activations=scheme("tensor", True)),
    ),
    ("mixed", "with activations by block", lambda d: group(d).update(
        input_activations=scheme("group", True, group_size=128))),
    ("targets", "targets is no list", lambda d: group(d).update(targets="Linear")),
    ("ignore", "ignore is no list", lambda d: d.update(ignore=[3])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "change"), [s[1:] for s in SCHEMES], ids=[s[0] for s in SCHEMES]
)
def test_schemes_without_kernels_are_refused_by_field(message: str, change: Change) -> None:
    declared = copy.deepcopy(LAYOUTS["tensor-static"])
    change(declared)
    with pytest.raises(ModelError, match=message) as caught:
        spec(declared)
    assert int(caught.value.exit) == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("block_structure", {"block_structure": [64, 64]}),
        ("group_size", {"group_size": 64}),
    ],
)
def test_other_blocks_than_128_are_refused(message: str, change: dict[str, Any]) -> None:
    declared = copy.deepcopy(LAYOUTS["block"])
    group(declared)["weights"].update(change)
    with pytest.raises(ModelError, match=message):
        spec(declared, **BLOCK_SIZES)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("fmt", {"fmt": "e5m2"}),
        ("weight_block_size", {"weight_block_size": [64, 128]}),
        ("activation_scheme", {"activation_scheme": "static"}),
        ("scale_fmt", {"scale_fmt": "ue8m0"}),
    ],
)
def test_other_settings_of_method_fp8_are_refused(message: str, change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=message):
        spec({**LAYOUTS["fp8-block"], **change}, **BLOCK_SIZES)


def test_sizes_that_blocks_do_not_fit_are_refused_by_module() -> None:
    sizes = {**BLOCK_SIZES, "num_key_value_heads": 1}
    with pytest.raises(ModelError, match=r"block scales of model.layers.0.self_attn.k_proj"):
        expected_tensors(spec(LAYOUTS["block"], **sizes))
    with pytest.raises(ModelError, match=r"64 values, no multiple of 128"):
        expected_tensors(spec(LAYOUTS["block"], **{**BLOCK_SIZES, "hidden_size": 64}))


def test_parts_of_one_projection_are_quantised_together() -> None:
    declared = {
        **LAYOUTS["tensor-static"],
        "ignore": ["lm_head", "model.layers.1.self_attn.k_proj"],
    }
    with pytest.raises(ModelError, match=r"layers.1.self_attn.k_proj is not quantised"):
        expected_tensors(spec(declared))


@pytest.mark.parametrize(
    "pattern",
    [
        *("re:(a+)+b", "re:.*a.*b.*c.*", "re:[", "re:" + "a" * 201),
        *("re:(?x)(.+)#\n+!", "re:(?x: (.+) +)!", "re:(.+)(?#so)+!", "re:(?i)a", "re:(?-x:a)"),
    ],
)
def test_patterns_that_could_run_for_long_are_refused(pattern: str) -> None:
    with pytest.raises(ModelError, match="pattern"):
        matches(pattern, "a" * 60)


@pytest.mark.parametrize(
    ("pattern", "module", "found"),
    [
        ("re:.*mlp.gate$", "model.layers.3.mlp.gate", True),
        ("re:.*mlp.gate$", "model.layers.3.mlp.gate_proj", False),
        ("lm_head", "lm_head", True),
        ("lm_head", "lm_head2", False),
        ("under:model.layers.0", "model.layers.0.mlp.up_proj", True),
        ("under:model.layers.1", "model.layers.10.mlp.up_proj", False),
    ],
)
def test_patterns_mean_what_they_say(pattern: str, module: str, found: bool) -> None:
    assert matches(pattern, module) is found


@pytest.mark.parametrize(
    ("ignore", "why"),
    [
        ([f"re:a{n}" for n in range(1001)], "1001 regular expressions, at most 1000"),
        ([f"a{n}" for n in range(100_001)], "100001 names"),
        (["a" * 501], "501 characters in a name"),
    ],
)
def test_lists_that_would_take_long_are_refused(ignore: list[str], why: str) -> None:
    with pytest.raises(ModelError, match="ignore is too long") as caught:
        spec({**LAYOUTS["tensor-static"], "ignore": ignore})
    assert why in caught.value.why


@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
def test_gpus_without_fp8_are_refused(target: str) -> None:
    with pytest.raises(DeviceError, match=f"{target} has no fp8"):
        check_target("the weights", Target.parse(target))
    for able in ("sm_89", "sm_90", "sm_120", "cpu"):
        check_target("the weights", Target.parse(able))


def test_recordings_and_the_interpreter_are_refused() -> None:
    quant = spec(LAYOUTS["tensor-static"]).quant
    with pytest.raises(ConfigError, match="compiled code"):
        check_compiled(quant, recorded=True)
    with pytest.raises(UsageError, match="--interpret"):
        check_interpretable(quant)
    check_compiled(quant, recorded=False)
    check_compiled(None, recorded=True)
    check_interpretable(None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fp8_checkpoint(tmp_path_factory.mktemp("fp8"), "llama", "tensor-static")


Q, K = (f"model.layers.1.self_attn.{name}_proj" for name in "qk")
DAMAGE: list[tuple[str, dict[str, torch.Tensor | None]]] = [
    (f"{Q}.weight_scale is missing", {f"{Q}.weight_scale": None}),
    (f"{Q}.input_scale is missing", {f"{Q}.input_scale": None}),
    (f"{Q}.weight_scale is \\[64, 1\\]", {f"{Q}.weight_scale": torch.ones(64, 1)}),
    (f"{Q}.weight is bfloat16", {f"{Q}.weight": torch.ones(64, 64).bfloat16()}),
    (f"{Q}.weight_scale is int32", {f"{Q}.weight_scale": torch.ones(1, dtype=torch.int32)}),
    ("model.norm.weight is float8", {"model.norm.weight": torch.ones(64).to(torch.float8_e4m3fn)}),
    ("q_proj.weight_zero_point is not part", {f"{Q}.weight_zero_point": torch.zeros(1)}),
    (f"{Q}.weight_scale has a scale that is zero", {f"{Q}.weight_scale": torch.zeros(1)}),
    (f"{Q}.weight_scale has a scale that is negative", {f"{Q}.weight_scale": torch.tensor([-1.0])}),
    (
        f"{Q}.weight_scale has a scale that is so large",
        {f"{Q}.weight_scale": torch.tensor([7.6e35])},
    ),
    (f"{Q}.input_scale has a scale that is NaN", {f"{Q}.input_scale": torch.tensor([torch.nan])}),
    (
        f"{Q}.input_scale has a scale that is infinite",
        {f"{Q}.input_scale": torch.tensor([torch.inf]).bfloat16()},
    ),
    (
        f"{Q}.input_scale and {K}.input_scale differ",
        {f"{Q}.input_scale": torch.tensor([0.5]), f"{K}.input_scale": torch.tensor([0.25])},
    ),
]


@pytest.mark.parametrize(("message", "change"), DAMAGE, ids=[str(i) for i in range(len(DAMAGE))])
def test_tensors_that_do_not_fit_are_named(
    good: Path, tmp_path: Path, message: str, change: dict[str, torch.Tensor | None]
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        open_source(str(altered(good, tmp_path, change)))
    assert int(caught.value.exit) == 2


def test_fp8_weights_without_a_config_that_says_so_are_refused(good: Path, tmp_path: Path) -> None:
    config = json.loads((good / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(load_file(good / "model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="is float8_e4m3fn, the config has it in 16 bits"):
        open_source(str(tmp_path))


def test_with_and_without_weights_the_request_is_the_same(good: Path) -> None:
    whole, bare = open_source(str(good)), open_source(str(good), weights="none")
    assert whole.model_key() == bare.model_key()
    entries = dict(whole.model_key().entries)
    assert entries["model.quantisation.weights"] == "tensor"
    assert entries["model.quantisation.activations"] == "static"
