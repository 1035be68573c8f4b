"""A hint names the command that would make what is missing, with what the user said."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from vcc.cache.settings import cache_root
from vcc.cli import main
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ModelConfig, ParallelConfig
from vcc.engine.models.source import open_source
from vcc.engine.next_step import compile_command, how_to_build
from vcc.engine.request import BuildRequest, settle
from vcc.engine.runtime import host
from vcc.engine.runtime.host import NotHere

OPTIONS = Path(__file__).parents[1] / "cli" / "options.json"


@pytest.fixture
def vcc(capsys, monkeypatch, tmp_path):
    """A command in this process: its code and its JSON."""
    monkeypatch.setenv("VCC_CACHE_DIR", str(tmp_path / "store"))

    def run(*words):
        code = main.run([*words, "--json"])
        return int(code), json.loads(capsys.readouterr().out)

    return run


def asked(config=None, target="cpu", named=False, weights=None, **model):
    return BuildRequest(
        source=open_source("demo", weights=weights),
        model=parse_model({"source": "demo", **model}),
        compilation=parse_config(config),
        parallel=ParallelConfig(),
        target=Target.parse(target),
        target_named=named,
        weights=weights,
    )


def hint(request, refused=None, root=None):
    return how_to_build(settle(request), root or cache_root(), refused)


def test_nothing_said_is_nothing_repeated() -> None:
    assert hint(asked()) == "build it: vcc compile demo"


MODEL_OPTIONS = {
    "dtype": "fp32",
    "kv_cache_dtype": "fp8",
    "revision": "main",
    "max_model_len": 64,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
    "max_loras": 3,
    "max_lora_rank": 8,
    "lora_target_modules": ["q_proj"],
    "enable_lora": True,
}
"""Fields of a model that the command line has options for, with a value each."""


@pytest.mark.parametrize("field", MODEL_OPTIONS)
def test_each_option_of_a_model_is_repeated(field: str) -> None:
    value = MODEL_OPTIONS[field]
    command = shlex.split(compile_command(asked(**{field: value}), cache_root()))
    option = f"--{field.replace('_', '-')}"
    assert option in command
    if value is not True:
        (said,) = value if isinstance(value, list) else (value,)
        assert command[command.index(option) + 1] == str(said)


def test_every_option_of_a_model_has_a_case_here() -> None:
    known = json.loads(OPTIONS.read_text())["vcc compile"]
    fields = {one.name for one in dataclasses.fields(ModelConfig)}
    given = {name.removeprefix("--").replace("-", "_") for name in known}
    assert fields & given == MODEL_OPTIONS.keys()


def test_what_was_said_is_repeated() -> None:
    config = {"mode": "vcc", "cuda_graph_mode": "full", "level": "1", "capture_sizes": [1, 2]}
    config |= {"custom_ops": ["none", "+rms_norm"]}
    command = compile_command(
        asked(config, weights="none", dtype="fp32", max_model_len=64), Path("/a b"), "cpu"
    )
    assert shlex.split(command) == [
        *("vcc", "compile", "demo", "--target", "cpu", "--mode", "full", "--compile", "vcc"),
        *("-O", "1", "--shapes", "1,2"),
        *("--compilation-config", '{"custom_ops":["none","+rms_norm"]}'),
        *("--dtype", "fp32", "--weights", "none", "--max-model-len", "64", "--cache-dir", "/a b"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--mode", "piecewise", "--dtype", "fp32"),
        ("--compile", "none", "-O", "0", "--max-num-seqs", "4"),
        ("--target", "cpu:x86-64-v4", "--shapes", "1,2,4", "--max-num-batched-tokens", "64"),
        ("--compilation-config", '{"inductor_config": {"max_autotune": false}}'),
    ],
)
def test_the_command_asks_for_what_the_run_asked_for(vcc, options) -> None:
    """Its request is the same: what it builds answers the run."""
    code, answer = vcc("run", "demo", *options, "--prompt", "a", "--require-warm")
    assert code == 1
    words = shlex.split(answer["error"]["hint"].removeprefix("build it: "))
    assert words[:3] == ["vcc", "compile", "demo"]
    assert vcc("inspect", "key", "demo", *options) == vcc("inspect", "key", *words[2:])
    assert vcc(*words[1:], "--dry-run")[0] == 0


def test_a_gpu_is_always_named(monkeypatch) -> None:
    """Who compiles may have another GPU, or none."""
    assert hint(asked(target="sm_90")) == "build it: vcc compile demo --target sm_90"


def test_for_another_architecture_the_command_is_for_the_gpu_that_is_here() -> None:
    refused = NotHere("arch", "sm_80", "it is for sm_80, a GPU is sm_90", "sm_90")
    found = hint(asked(target="sm_80", named=True, dtype="bf16"), refused)
    assert found == "build it: vcc compile demo --target sm_90 --dtype bf16"


def test_for_an_older_driver_both_versions_are_named() -> None:
    refused = NotHere("driver", "13010", "…", "12.4")
    assert hint(asked(target="sm_90"), refused) == (
        "install a driver of CUDA 13.1 or later (this one is of CUDA 12.4), or build it with an "
        "older toolkit: vcc compile demo --target sm_90"
    )


def test_for_an_older_cpu_the_command_is_for_its_level(monkeypatch) -> None:
    monkeypatch.setattr(host, "cpu_flags", lambda: host.LEVELS["x86-64-v2"])
    refused = host.refusal({"cpu_level": "x86-64-v3"})
    assert hint(asked(), refused) == "build it: vcc compile demo --target cpu:x86-64-v2"


def test_where_the_cpu_cannot_be_known_that_is_said(monkeypatch) -> None:
    monkeypatch.setattr(host, "cpu_flags", frozenset)
    refused = host.refusal({"cpu_level": "x86-64-v3"})
    assert refused is not None
    assert "cannot be read from /proc/cpuinfo" in refused.why
    assert hint(asked(), refused).startswith("mount /proc; ")
    assert hint(asked(), refused).endswith("vcc compile demo --compile none")


def test_where_nothing_can_be_stored_the_hint_is_to_run_it_cold() -> None:
    assert "vcc run --compile stock" in hint(asked({"mode": "stock"}))
