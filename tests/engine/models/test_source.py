"""Opening a model by what the user typed; the model key; errors that say what, why and a hint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import ARCHITECTURES, make_checkpoint

from vcc.cache.errors import ModelError
from vcc.engine.models import source as source_module
from vcc.engine.models.architectures import spec_of
from vcc.engine.models.hub import HubPlace
from vcc.engine.models.json_file import read_json
from vcc.engine.models.source import open_source


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")


def edited(directory: Path, to: Path, **fields: Any) -> Path:
    """A copy of a model's config with other fields; None removes one."""
    config = json.loads((directory / "config.json").read_text()) | fields
    to.mkdir(exist_ok=True)
    kept = {name: value for name, value in config.items() if value is not None}
    (to / "config.json").write_text(json.dumps(kept))
    return to


def test_a_title_is_the_last_part_of_a_directory(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = (str(llama), f"{llama}/", f"{llama.parent}/x/../{llama.name}")
    monkeypatch.chdir(llama.parent)
    (llama.parent / "x").mkdir(exist_ok=True)
    assert {open_source(name).title for name in (*forms, f"./{llama.name}")} == {llama.name}
    monkeypatch.chdir(llama)
    assert open_source(".").title == llama.name
    assert open_source("demo").title == "demo"


def test_a_directory_gives_config_weights_tokenizer_and_generation(llama: Path) -> None:
    source = open_source(str(llama))
    assert (source.kind, source.directory, source.dtype) == ("decoder", llama, "float32")
    assert source.spec == spec_of(source.config)
    assert source.tokenizer == llama / "tokenizer.json"
    assert source.generation["eos_token_id"] == 2
    assert source.has_weights


def test_opening_and_keying_a_model_imports_no_torch(llama: Path) -> None:
    code = (
        "import sys\n"
        "from vcc.engine.models.source import open_source\n"
        "print(open_source(sys.argv[1]).model_key().digest.hex)\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(llama)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == open_source(str(llama)).model_key().digest.hex


@pytest.mark.parametrize("name", ["dmeo", "Demo", "demos"])
def test_a_misspelt_demo_is_hinted_at(name: str, tmp_path: Path) -> None:
    offline = HubPlace(tmp_path, offline=True)
    with pytest.raises(ModelError) as caught:
        open_source(name, hub=offline)
    assert 'did you mean "demo"?' in caught.value.hint
    with pytest.raises(ModelError) as caught:
        open_source("bert-base", hub=offline)
    assert "demo" not in caught.value.hint


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_with_and_without_weights_the_request_is_the_same(arch: str, tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "made", arch, dtype="bfloat16", shards=2)
    bare = edited(made, tmp_path / "bare")
    assert open_source(str(bare), weights="none").model_key() == open_source(str(made)).model_key()


def test_the_key_ignores_place_names_versions_dtype_and_layout(llama: Path, tmp_path: Path) -> None:
    key = open_source(str(llama)).model_key()
    old = edited(
        llama,
        tmp_path / "old",
        _name_or_path="/somewhere",
        transformers_version="4.1.0",
        torch_dtype="bfloat16",
        dtype=None,
        use_cache=False,
        rope_parameters=None,
        rope_theta=10000.0,
        rope_scaling=None,
    )
    assert open_source(str(old), weights="none").model_key() == key


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 128},
        {"num_hidden_layers": 2},
        {"rms_norm_eps": 1e-6},
        {"tie_word_embeddings": True},
        {"attention_bias": True},
        {"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}},
        {"architectures": ["MistralForCausalLM"]},
    ],
)
def test_the_key_changes_with_what_the_model_computes(
    change: dict[str, Any], llama: Path, tmp_path: Path
) -> None:
    other = open_source(str(edited(llama, tmp_path, **change)), weights="none").model_key()
    assert other != open_source(str(llama)).model_key()


def test_weights_from_another_place(llama: Path, tmp_path: Path) -> None:
    bare = edited(llama, tmp_path / "bare")
    assert open_source(str(bare), weights=str(llama)).has_weights
    assert open_source(str(bare), weights=str(llama / "model.safetensors")).has_weights
    with pytest.raises(ModelError, match="no weights at"):
        open_source(str(bare), weights=str(tmp_path / "nowhere"))


def test_config_and_weights_that_disagree(llama: Path, tmp_path: Path) -> None:
    bare = edited(llama, tmp_path, intermediate_size=128)
    with pytest.raises(ModelError, match="disagree"):
        open_source(str(bare), weights=str(llama))


@pytest.mark.parametrize("name", ["./nowhere", "no/such/model/dir", "/nowhere", "", "x.gguf"])
def test_a_name_that_is_nothing(name: str) -> None:
    with pytest.raises(ModelError):
        open_source(name)


def test_a_file_is_not_a_model(llama: Path) -> None:
    with pytest.raises(ModelError, match="no model at") as caught:
        open_source(str(llama / "model.safetensors"))
    assert "directory" in caught.value.why


@pytest.mark.parametrize("text", [None, "", "{", "[]", "1", '"x"', "[" * 100_000, "\xff"])
def test_a_config_that_is_missing_or_broken(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"config\.json|not a model directory"):
        open_source(str(tmp_path))


def test_a_config_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"cannot read .*config\.json: it is no regular file"):
        read_json(tmp_path / "config.json")


def test_an_unavailable_demo_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(source_module, "DEMO", tmp_path / "demo")
    with pytest.raises(ModelError, match="demo"):
        open_source("demo")


def test_shapes_go_with_factories_only(llama: Path) -> None:
    with pytest.raises(ModelError, match="--shape"):
        open_source(str(llama), shapes=("x=8",))


def test_a_factory_is_known_by_its_files_and_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop_front.py"
    file.write_text("import torch\ndef make(): return torch.nn.Linear(8, 8)\n")
    first = open_source("shop_front:make", shapes=("x=1-8x8",))
    assert (first.kind, str(first.factory)) == ("module", "shop_front:make")
    assert dict(first.model_key())["model.shape.x"] == "x=1-8x8"
    assert open_source("shop_front:make", shapes=("x=1-9x8",)).model_key() != first.model_key()
    file.write_text("import torch\ndef make(): return torch.nn.Linear(8, 9)\n")
    assert open_source("shop_front:make", shapes=("x=1-8x8",)).model_key() != first.model_key()


def test_generation_settings_fall_back_to_the_token_ids_of_the_config(
    llama: Path, tmp_path: Path
) -> None:
    bare = edited(llama, tmp_path, eos_token_id=[5, 6])
    assert open_source(str(bare), weights="none").generation["eos_token_id"] == [5, 6]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7, "top_k": 3}')
    found = open_source(str(bare), weights="none").generation
    assert (found["eos_token_id"], found["top_k"], found["bos_token_id"]) == (7, 3, 1)


def test_a_factory_may_take_its_weights_from_a_checkpoint(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_back.py").write_text("def make(): ...\n")
    bare, full = (open_source("shop_back:make", weights=w) for w in ("none", str(llama)))
    assert (bare.has_weights, full.has_weights) == (False, True)
    assert bare.model_key() == full.model_key()


def test_the_demo_opens_when_it_is_installed() -> None:
    if not source_module.DEMO.joinpath("config.json").is_file():
        pytest.skip("the demo model is not part of this checkout")
    assert open_source("demo").has_weights
