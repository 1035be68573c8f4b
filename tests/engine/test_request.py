"""Build and run settle alike; the base is always stated, open fields when the user named them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from vcc.cache.errors import ConfigError, DeviceError
from vcc.cache.key import Key
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import open_source
from vcc.engine.ops import layers
from vcc.engine.request import (
    KNOWN_OPS,
    BuildRequest,
    check_buildable,
    look_up,
    request_pairs,
    settle,
)
from vcc.engine.torch_shim.profiles import PROFILES


@pytest.fixture(scope="module")
def demo():
    return open_source("demo", weights="none")


@pytest.fixture
def request_of(demo):
    def make(config=None, target="cpu", **model):
        return BuildRequest(
            source=demo,
            model=parse_model({"source": "demo", **model}),
            compilation=parse_config(config),
            parallel=ParallelConfig(),
            target=Target.parse(target),
        )

    return make


def test_known_ops_are_the_operator_layers(request_of):
    named = {
        op
        for kind in vars(layers).values()
        if isinstance(op := getattr(kind, "op", None), str) and op
    }
    assert named == set(KNOWN_OPS)


def test_a_run_that_says_nothing_states_the_base_alone(request_of):
    settled = settle(request_of())
    base, stated = look_up(settled)
    assert stated == {}
    assert set(dict(base)) == {
        *("model.digest", "model.dtype", "model.quantisation", "target.platform"),
        *("parallel.tp", "parallel.ep", "parallel.dp"),
    }


def test_base_and_open_fields_are_the_whole_request_and_a_clean_key(request_of):
    settled = settle(request_of())
    pairs, open_fields = request_pairs(settled)
    base, _ = look_up(settled)
    assert set(dict(base)) | set(open_fields) == set(pairs)
    assert not set(dict(base)) & set(open_fields)
    assert list(open_fields) == sorted(open_fields)
    assert Key.of(pairs)


@pytest.mark.parametrize(
    ("config", "model", "stated"),
    [
        ({"mode": "vcc"}, {}, {"config.mode": "VCC_COMPILE"}),
        ({"level": 1}, {}, {"config.level": "O1"}),
        ({"capture_sizes": [4, 1]}, {}, {"config.capture_sizes": "[1,4]"}),
        ({"max_capture_size": 2}, {}, {"config.capture_sizes": "[1,2]"}),
        (
            {"pass_config": {"eliminate_noops": False}},
            {},
            {"config.pass_config.eliminate_noops": "false"},
        ),
        (None, {"max_model_len": 64}, {"model.max_model_len": "64"}),
        (None, {"dtype": "bf16"}, {}),
    ],
)
def test_what_the_user_named_is_stated_with_its_resolved_value(request_of, config, model, stated):
    assert look_up(settle(request_of(config, **model)))[1] == stated


def test_a_gpu_that_the_user_named_and_a_device_of_their_own_are_stated(request_of):
    request = replace(request_of(target="sm_90"), target_named=True)
    assert look_up(settle(request))[1] == {"target": "sm_90"}
    assert look_up(settle(replace(request_of(), target_named=True)))[1] == {}
    own = replace(PROFILES["sm_90"], sm_count=78)
    settled = settle(replace(request_of(target="sm_90"), profile=own))
    assert look_up(settled)[1] == {"target.profile": own.digest}
    assert request_pairs(settled)[0]["target.profile"] == own.digest


def test_dynamic_shapes_are_stated_by_their_ends(request_of):
    _, stated = look_up(settle(request_of({"dynamic_shapes": {"tokens": [1, 64]}})))
    assert stated == {
        "config.dynamic_shapes.tokens.min": "1",
        "config.dynamic_shapes.tokens.max": "64",
    }


def test_what_a_build_published_answers_the_same_words(request_of):
    for config, model in (
        ({"mode": "none"}, {}),
        ({"cuda_graph_mode": "full"}, {"max_num_seqs": 4}),
    ):
        settled = settle(request_of(config, **model))
        pairs, _ = request_pairs(settled)
        base, stated = look_up(settled)
        assert dict(base).items() <= pairs.items()
        assert stated.items() <= pairs.items()


def test_place_and_revision_are_in_no_request(request_of, demo):
    request = request_of()
    moved = replace(
        request,
        source=replace(demo, name="x", revision="abc"),
        model=replace(request.model, source="/elsewhere", revision="abc"),
    )
    assert request_pairs(settle(moved)) == request_pairs(settle(request))


def test_the_checkpoints_dtype_is_taken_unless_another_is_asked_for(request_of):
    assert settle(request_of()).model.dtype.value == "bf16"
    assert settle(request_of(dtype="fp32")).model.dtype.value == "fp32"
    with pytest.raises(DeviceError):
        settle(request_of(dtype="fp16"))


def test_positions_bound_the_length(request_of):
    assert settle(request_of()).model.max_model_len == 512
    with pytest.raises(ConfigError, match="max_model_len 513"):
        settle(request_of(max_model_len=513))


def test_parallel_layouts_are_refused(request_of):
    with pytest.raises(ConfigError, match="tp = 2"):
        settle(replace(request_of(), parallel=ParallelConfig(tp=2)))


def test_a_mode_that_stores_nothing_cannot_be_built(request_of):
    check_buildable(settle(request_of()))
    with pytest.raises(ConfigError, match="STOCK_TORCH_COMPILE"):
        check_buildable(settle(request_of({"mode": "stock"})))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"splitting_ops": [], "cuda_graph_mode": "piecewise"},
            "cuda_graph_mode: piecewise → none",
        ),
        (
            {"use_inductor_graph_partition": True, "splitting_ops": ["vcc::kv_write"]},
            "cuts nothing",
        ),
        ({"capture_sizes": [8, 8, 4], "custom_ops": ["+rms_norm"], "inductor_config": {}}, None),
        ({}, None),
    ],
)
def test_what_was_asked_for_and_is_something_else_is_told(request_of, config, told):
    lines = settle(request_of(config)).overruled
    assert len(lines) == (told is not None)
    assert told is None or told in lines[0]


@pytest.mark.parametrize("limit", [{"max_model_len": 128}, {"block_size": 8}])
def test_a_limit_of_sequences_for_a_model_without_any_is_told(
    request_of, limit, tmp_path, monkeypatch
):
    (tmp_path / "own_module.py").write_text("def make(): ...\n")
    monkeypatch.chdir(tmp_path)
    forward = open_source("own_module:make", shapes=("x=1-8x16",))
    asked = request_of(**limit)
    ((field, value),) = limit.items()
    (line,) = settle(replace(asked, source=forward)).overruled
    assert line.startswith(f"{field} = {value} has no effect: a plain forward")
    assert settle(asked).overruled == ()
    assert settle(replace(request_of(), source=forward)).overruled == ()


def test_settling_a_request_imports_nothing_of_builds():
    """Every run does it, those that play on a GPU in half a second too."""
    code = (
        "import sys\n"
        "from vcc.engine.models.source import open_source\n"
        "from vcc.engine.config.target import Target\n"
        "from vcc.engine.config.types import CompilationConfig, ModelConfig, ParallelConfig\n"
        "from vcc.engine.request import BuildRequest, settle\n"
        "settle(BuildRequest(open_source('demo'), ModelConfig('demo'), CompilationConfig(),\n"
        "                    ParallelConfig(), Target.parse('sm_90')))\n"
        "print([m for m in sys.modules if m in ('torch', 'importlib.metadata')\n"
        "       or m.startswith(('vcc.engine.ops.', 'vcc.engine.passes.'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['vcc.engine.ops.names']"
