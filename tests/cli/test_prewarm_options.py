"""Fields of a prewarm file are the options of `vcc compile`: all of them, with the same meaning."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from support.checkpoints import ARCHITECTURES, SIZES

from vcc.cli import compile as compile_module
from vcc.cli.prewarm_options import NAMES, model_options, words_of
from vcc.cli.request import ModelOptions
from vcc.engine.prewarm.fields import MATRIX, OPTIONS
from vcc.engine.prewarm.matrix import Cell

LEFT_OUT = {
    "model": "the build's own key",
    "jobs": "of the whole command: vcc prewarm --jobs",
    "keep": "for looking at one build: vcc compile --keep",
}
"""Options of `vcc compile` that no build of a file has, and why."""

VALUES = {
    "target": "sm_90",
    "dtype": "bf16",
    "kv_cache_dtype": "fp8",
    "mode": "full",
    "compile": "none",
    "opt_level": 1,
    "shapes": [1, 2],
    "compilation_config": {"custom_ops": ["all"]},
    "target_profile": "h200.json",
    "weights": "none",
    "revision": "main",
    "trust_remote_code": True,
    "shape": ["x=8", "y=1-8"],
    "max_model_len": 64,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
    "enable_lora": True,
    "max_loras": 2,
    "max_lora_rank": 8,
    "lora_target_modules": ["q_proj", "v_proj"],
}


def test_every_option_of_a_build_is_a_field_or_says_why_not() -> None:
    options = {one.name for one in fields(ModelOptions)}
    assert {option for option, _, _ in NAMES.values()} == options - LEFT_OUT.keys()
    assert NAMES.keys() == {**MATRIX, **OPTIONS}.keys() <= VALUES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_field_means_what_its_option_means(vcc, monkeypatch, name: str) -> None:
    """The words of a build's own process are read back to the options that this one resolves."""
    cell = Cell("a", "demo", {name: VALUES[name]}, 1, 1)
    read = []
    monkeypatch.setattr(compile_module, "build_request", lambda asked: read.append(asked) or 1 / 0)
    vcc("compile", *words_of(Path("vcc.toml"), cell, 3))
    assert read == [model_options(Path("vcc.toml"), cell, 3)]


def test_a_flag_that_is_false_is_not_there() -> None:
    cell = Cell("a", "demo", {"trust_remote_code": False}, 1, 1)
    assert words_of(Path("vcc.toml"), cell, 0) == ["demo", "--jobs", "0"]


def test_code_of_a_checkpoint_is_trusted_by_its_digest(vcc, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "own"
    folder.mkdir()
    config = {
        "architectures": [ARCHITECTURES["llama"]],
        **SIZES,
        "auto_map": {"AutoModel": "own.M"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("x = 1")
    text = '[[build]]\nmodel = "./own"\nweights = "none"\ncompile = "none"\n'
    (tmp_path / "vcc.toml").write_text(text)
    (refused,) = vcc("prewarm", "--check", "--json").json["builds"]
    assert refused["state"] == "failed"
    (tmp_path / "vcc.toml").write_text(f"{text}trust_remote_code = true\n")
    (found,) = vcc("prewarm", "--check", "--json").json["builds"]
    assert found["state"] == "missing"
    (folder / "own.py").write_text("x = 2")
    (other,) = vcc("prewarm", "--check", "--json").json["builds"]
    assert other["key"] != found["key"]
