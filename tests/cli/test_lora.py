"""Adapters on the command line: what is said and refused, and code without a place for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.adapters import make_adapter
from support.checkpoints import make_checkpoint

import vcc
from vcc.cache.errors import UsageError
from vcc.cli import main
from vcc.engine.adapters import parse_adapters
from vcc.engine.runtime.requests import Request
from vcc.engine.stdio import Line, Stdio

NAMES = ("", "one", "two", "one")
EAGER = ("--compile", "none", "--mode", "none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("model")
    make_checkpoint(home / "base", "llama", num_hidden_layers=1)
    for seed, name in enumerate(("one", "two")):
        make_adapter(home / name, home / "base", rank=4, seed=seed)
    make_adapter(home / "high", home / "base", rank=32)
    return home


@pytest.fixture
def run(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("VCC_CACHE_DIR", str(tmp_path / "store"))

    def run(command: str, *words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run([command, str(folder / "base"), *map(str, words)])
        return int(code), *capsys.readouterr()

    return run


def prompts(tmp_path: Path, *named: str | None) -> Path:
    file = tmp_path / "prompts.json"
    ids = [5, 6, 7, 8, 9, 10, 11]
    file.write_text(json.dumps([ids if n is None else {"prompt": ids, "lora": n} for n in named]))
    return file


def answers(run, folder: Path, file: Path, *names: str) -> list[list[int]]:
    given = [word for name in names for word in ("--lora", f"{name}={folder / name}")]
    code, out, err = run(
        "run", *given, *EAGER, "--prompts", file, "--max-new-tokens", 6, "--ignore-eos", "--json"
    )
    assert code == 0, err
    return [one["token_ids"] for one in json.loads(out)["prompts"]]


def test_a_lone_adapter_is_for_every_prompt_that_names_none(run, folder: Path, tmp_path: Path):
    named, silent, plain = answers(run, folder, prompts(tmp_path, "one", None, ""), "one")
    assert named == silent != plain


def test_with_several_adapters_each_prompt_names_its_own(run, folder: Path, tmp_path: Path):
    both = ("one", "two")
    one, two, silent, plain = answers(run, folder, prompts(tmp_path, *both, None, ""), *both)
    assert silent == plain
    assert len({tuple(tokens) for tokens in (one, two, plain)}) == 3


@pytest.mark.parametrize("names", [("one", "two"), ("one",)])
def test_a_plain_prompt_beside_several_adapters_is_told_that_it_has_none(
    run, folder: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    given = [word for name in names for word in ("--lora", f"{name}={folder / name}")]
    words = ("run", *given, *EAGER, "--max-new-tokens", 1, "--prompts")
    told = "prompts that name no adapter are answered without one: --lora gave 2 (one, two)"
    code, _, err = run(*words, prompts(tmp_path, None))
    assert (code, told in err) == (0, len(names) > 1), err
    code, _, err = run(*words, prompts(tmp_path, "one", ""))
    assert (code, "name no adapter" in err) == (0, False), err


def test_what_cannot_be_is_refused_before_anything_is_built(run, folder: Path, tmp_path: Path):
    file = prompts(tmp_path, "two")
    for words, what in (
        (("--lora", "one"), "--lora 'one' cannot be read"),
        (("--lora", f"two={folder / 'nowhere'}"), "no adapter at"),
        (("--lora", f"one={folder / 'one'}"), "prompt 0 is for an adapter called 'two'"),
        (("--lora", f"two={folder / 'high'}", "--max-lora-rank", 16), "has rank 32"),
        (("--max-loras", 2), "max_loras is given, but adapters are not enabled"),
    ):
        code, _, err = run("run", *words, *EAGER, "--prompts", file)
        assert (code, what in err) == (2, True), err
    assert not list((tmp_path / "store").glob("*/*manifest*"))


def test_code_without_adapters_says_why_and_how(run, folder: Path, tmp_path: Path) -> None:
    assert run("compile", *EAGER)[0] == 0
    file = prompts(tmp_path, None)
    words = ("--lora", f"one={folder / 'one'}", *EAGER, "--prompts", file, "--require-warm")
    code, _, err = run("run", *words)
    assert code == 1
    assert "model.enable_lora" in err
    assert "--enable-lora" in err
    model = vcc.load(
        str(folder / "base"),
        target="cpu",
        cache_dir=tmp_path / "store",
        require_warm=True,
        compilation={"mode": "NO_COMPILATION", "cuda_graph_mode": "none"},
    )
    assert model.loras == ()
    for refused in (
        lambda: model.load_lora("one", folder / "one"),
        lambda: model.unload_lora("one"),
        lambda: next(model.generate([Request(0, (5, 6), lora="one")])),
    ):
        with pytest.raises(UsageError, match="compiled without adapters") as caught:
            refused()
        assert "--enable-lora" in caught.value.hint


def test_a_program_loads_and_unloads_adapters(folder: Path, tmp_path: Path) -> None:
    model = vcc.load(
        str(folder / "base"),
        target="cpu",
        cache_dir=tmp_path / "store",
        compilation={"mode": "NO_COMPILATION", "cuda_graph_mode": "none"},
        enable_lora=True,
        max_loras=1,
        max_lora_rank=4,
    )
    prompt = (5, 6, 7, 8)

    def tokens(lora: str = "") -> list[int]:
        asked = [Request(0, prompt, max_new_tokens=6, lora=lora)]
        return [event.token for event in model.generate(asked)]

    before = tokens()
    model.load_lora("one", folder / "one")
    model.load_lora("two", str(folder / "two"))
    assert model.loras == ("one", "two")
    found = {name: tokens(name) for name in ("one", "two", "one")}
    assert found["one"] != found["two"]
    assert tokens("one") == found["one"], "evicted and written again, it answers the same"
    assert model.counters["compiles"] == 0
    model.unload_lora("one")
    model.unload_lora("two")
    assert tokens() == before


def test_a_changed_file_ends_the_requests_for_it_and_no_others(folder: Path, tmp_path: Path):
    changed = shutil.copytree(folder / "two", tmp_path / "two")
    model = vcc.load(
        str(folder / "base"),
        target="cpu",
        cache_dir=tmp_path / "store",
        compilation={"mode": "NO_COMPILATION", "cuda_graph_mode": "none"},
        enable_lora=True,
        max_loras=1,
        max_lora_rank=4,
    )
    model.load_lora("one", folder / "one")
    model.load_lora("two", changed)
    weights = changed / "adapter_model.safetensors"
    weights.write_bytes((folder / "one" / weights.name).read_bytes())
    told: list[Mapping[str, Any]] = []
    asked = [{"prompt": [5, 6, 7], "id": name or "none", "lora": name} for name in NAMES]
    lines = [Line(index + 1, json.dumps(one).encode()) for index, one in enumerate(asked)]
    Stdio(model.serving(), told.append, vcc.Overrides(max_new_tokens=3)).run(lines)
    (refused,) = [one for one in told if "error" in one]
    assert (refused["line"], refused["id"], refused["error"]["exit"]) == (3, "two", 2)
    assert "is not the file that was loaded" in refused["error"]["what"]
    assert [one["id"] for one in told if "finish_reason" in one] == ["none", "one", "one"]


def test_names_and_directories_of_adapters() -> None:
    assert parse_adapters(["a=x/y", "b=c=d"]) == (("a", Path("x/y")), ("b", Path("c=d")))
    for text in ("a", "=x", "a="):
        with pytest.raises(UsageError, match="cannot be read"):
            parse_adapters([text])
    with pytest.raises(UsageError, match="twice"):
        parse_adapters(["a=x", "a=y"])
