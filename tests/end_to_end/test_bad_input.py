"""Bad input through the command line: what, why, hint, a stable exit code, the same in JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import make_checkpoint

Vcc = Callable[..., Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sharded checkpoint without faults."""
    return make_checkpoint(tmp_path_factory.mktemp("models") / "good", "llama", shards=3)


@pytest.fixture
def model(good: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(good, tmp_path / "model"))


@pytest.fixture
def refused(vcc: Vcc, tmp_path: Path) -> Callable[..., None]:
    """Run a command that must be refused, in both forms; nothing may be stored by it."""

    def run(*words: object, code: int, what: str, why: str = "", hint: str = "") -> None:
        store = tmp_path / "untouched"
        text, as_json = vcc(*words, store=store), vcc(*words, "--json", store=store)
        error = as_json.json["error"]
        assert text.code == as_json.code == error["exit"] == code, text.err
        assert text.out == ""
        for part, wanted in (("what", what), ("why", why), ("hint", hint)):
            assert wanted in error[part]
            assert error[part] in text.err
        assert error["why"] or error["hint"]
        assert "Traceback" not in text.err
        assert not store.exists()

    return run


def edit(model: Path, **fields: object) -> Path:
    """The model with other fields in its config.json."""
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return model


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_missing_model(refused: Callable[..., None], tmp_path: Path, command: str) -> None:
    words = (command, tmp_path / "nowhere", *(["--prompt", "a"] if command == "run" else []))
    refused(*words, code=2, what="no model at", why="no such directory", hint="demo")


def test_a_shard_that_the_index_names_is_missing(refused: Callable[..., None], model: Path) -> None:
    lost = sorted(model.glob("*.safetensors"))[1]
    lost.unlink()
    refused("compile", model, code=2, what="only in part here", why=lost.name, hint="download")


def test_a_shard_is_cut_short(refused: Callable[..., None], model: Path) -> None:
    shard = sorted(model.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    refused("compile", model, code=2, what=shard.name, why="the file has", hint="download")


def test_a_pickled_checkpoint_is_never_opened(refused: Callable[..., None], model: Path) -> None:
    for file in model.glob("*.safetensors*"):
        file.unlink()
    trap = model / "ran"
    (model / "pytorch_model.bin").write_bytes(b"cos\nmkdir\n(V%s\ntR." % str(trap).encode())
    refused("compile", model, code=2, what="safetensors", why="pickle", hint="save_pretrained")
    refused("run", model, "--prompt", "w5", code=2, what="safetensors", why="pickle")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [("MambaForCausalLM", "Mamba"), ("DeepseekV3ForCausalLM", "MLA"), ("NovelForCausalLM", "")],
)
def test_an_unknown_architecture_names_those_that_work(
    refused: Callable[..., None], model: Path, name: str, why: str
) -> None:
    edit(model, architectures=[name])
    refused("compile", model, code=2, what=name, why=why, hint="LlamaForCausalLM, Mistral")
    refused("compile", model, code=2, what="not supported", hint="Qwen3MoeForCausalLM")


def test_config_and_weights_that_disagree_show_the_first_five(
    vcc: Vcc, refused: Callable[..., None], model: Path, tmp_path: Path
) -> None:
    edit(model, intermediate_size=112)
    first = "model.layers.0.mlp.gate_proj.weight is [96, 64], the config says [112, 64]"
    refused("compile", model, code=2, what="disagree", why=first, hint="config.json")
    why = vcc("compile", model, "--json", store=tmp_path / "none").json["error"]["why"]
    assert why.count("the config says") == 5
    assert why.endswith("and 4 more")


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (("--mode", "ful"), 'cuda_graph_mode "ful"', 'did you mean "full"?'),
        (("--compile", "vc"), 'mode "vc"', 'did you mean "vcc"?'),
        (("--dtype", "bf61"), 'dtype "bf61"', 'did you mean "bf16"?'),
        (("--compilation-config", '{"modus": 3}'), 'field "modus"', 'did you mean "mode"?'),
        (
            ("--compilation-config", '{"pass_config": {"eliminate_noop": true}}'),
            "eliminate_noop",
            'did you mean "eliminate_noops"?',
        ),
        (
            ("--compilation-config", '{"custom_ops": ["+rms_nrm"]}'),
            'custom op "rms_nrm"',
            'did you mean "rms_norm"?',
        ),
        (("--mod", "full"), "--mod", "--help"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_a_misspelt_word_is_answered_with_the_closest(
    refused: Callable[..., None], words: tuple[str, ...], what: str, hint: str
) -> None:
    refused("compile", "demo", *words, code=2, what=what, hint=hint)


@pytest.mark.parametrize(
    ("words", "what", "why"),
    [
        (("--shapes", "0,1"), "--shapes", '"0" is not a whole number of at least 1'),
        (("--shapes", "-4"), "--shapes", '"-4" is not a whole number'),
        (("--shapes", "4096"), "no capture size is left", "token budget of 2048"),
        (("--max-num-seqs", "0"), "max_num_seqs must be at least 1", "got 0"),
        (("--max-model-len", "4096"), "max_model_len 4096 is too long", "512 positions"),
        (("--compilation-config", '{"capture_sizes": [0]}'), "capture_sizes[0]", "got 0"),
        (("--compilation-config", '{"compile_sizes": [0]}'), "compile_sizes[0]", "got 0"),
        (
            ("--compilation-config", '{"compile_sizes": [4096]}'),
            "compile_sizes has 4096",
            "no step is that large",
        ),
        (("--compilation-config", "{"), "not valid JSON", "line 1"),
        (("--compilation-config", '{"mode": 7}'), "mode", ""),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_sizes_and_values_out_of_range(
    refused: Callable[..., None], words: tuple[str, ...], what: str, why: str
) -> None:
    refused("compile", "demo", *words, code=2, what=what, why=why)


@pytest.mark.parametrize("dtype", ["fp16", "half"])
def test_a_dtype_that_the_cpu_cannot_do(refused: Callable[..., None], dtype: str) -> None:
    for command in (("compile", "demo"), ("run", "demo", "--prompt", "a")):
        refused(
            *command,
            *("--dtype", dtype),
            code=3,
            what="dtype fp16 is not possible on cpu",
            why="fp32, bf16",
            hint="--dtype bf16",
        )


def test_a_dtype_without_kernels(refused: Callable[..., None]) -> None:
    words = ("compile", "demo", "--dtype", "fp8")
    refused(*words, code=3, what="dtype fp8", why="fp32 and bf16", hint="--dtype bf16")


def test_stock_code_cannot_be_stored(refused: Callable[..., None]) -> None:
    words = ("compile", "demo", "--compile", "stock")
    refused(*words, code=2, what="no artifact", why="pickle", hint="vcc run --compile stock")


@pytest.mark.parametrize(
    ("words", "what", "why"),
    [
        (("--prompt", ""), "prompt 0 is empty", "no token"),
        (("--prompt", "fine", "--prompt", ""), "prompt 1 is empty", "no token"),
        (("--prompt", "It is " * 300), "prompt 0 is too long", "the context holds 512"),
        ((), "no prompt", "--prompt"),
        (("--prompt", "a", "--max-new-tokens", "0"), "asks for 0 new tokens", "at least one"),
        (("--prompt", "a", "--temperature", "-1"), "temperature", "0 (greedy) or more"),
        (("--prompt", "a", "--golden", "som"), '--golden "som"', ""),
        (("--prompts", "/nowhere/file"), "/nowhere/file", ""),
    ],
    ids=range(8),
)
def test_prompts_that_cannot_be_answered(
    refused: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    what: str,
    why: str,
) -> None:
    """Refused before anything is booted, let alone built."""
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    refused("run", "demo", *words, code=2, what=what, why=why)


def test_an_id_that_is_not_here_without_a_network(
    refused: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for command in (("compile", "some/model"), ("run", "some/model", "--prompt", "a")):
        refused(*command, code=2, what="not ready", why="HF_HUB_OFFLINE", hint="hf download")


def test_an_id_whose_download_fails(
    spawn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The port is closed: as good as no network, and quick."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    done = spawn("compile", "some/model", "--json", store=tmp_path / "none")
    assert done.code == 2
    assert "the download failed" in done.json["error"]["why"]
    assert "hf download some/model" in done.json["error"]["hint"]


def test_weights_that_are_not_there_at_run_time(refused: Callable[..., None], good: Path) -> None:
    words = ("run", good, "--weights", "none", "--prompt", "w5")
    refused(*words, code=2, what="no weights", hint="--weights")
