"""The documents are true: commands run, links resolve, words are defined."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import (
    FENCE,
    anchors,
    commands,
    documents,
    glossary,
    links,
    lost_anchors,
    sessions,
    unsaid,
)
from support.sources import ROOT

VCC = (sys.executable, "-c", "from vcc.cli.main import main; main()")

# Run here, in this order, in one store. Whatever a document shows must stand in one of the tables.
EXECUTED = (
    "vcc compile demo --mode full",
    'vcc run demo --prompt "It is a truth" --max-new-tokens 40',
    'vcc run demo --require-warm --prompt "My dear sister" --json',
    "vcc inspect cache",
    "vcc inspect artifact demo",
    "vcc inspect key demo",
    "vcc compile demo --target sm_90",
    "vcc inspect graph demo --tokens 4 --seqs 4",
    "vcc verify demo --interpret --target sm_90",
)

# Command -> the file that runs it, or one of the same form with a checkpoint made on the spot.
TESTED_ELSEWHERE = {
    "make demo": ".ci/run",
    "make test": ".ci/run",
    "make install": "Makefile",
    "make install TORCH_INDEX=https://download.pytorch.org/whl/cpu": "Makefile",
    "vcc compile Qwen/Qwen3-0.6B --mode full --dtype bf16 --weights none": "tests/cli",
    "vcc run Qwen/Qwen3-0.6B --chat": "tests/cli",
    "vcc passes ls": "tests/cli/test_passes.py",
    "vcc passes show eliminate_noops": "tests/cli/test_passes.py",
    "vcc passes check eliminate_noops demo": "tests/cli/test_passes.py",
    "vcc passes check my_passes:SQUARE demo": "tests/engine/passes/test_documented.py",
    'vcc compile demo --compilation-config \'{"user_passes": ["my_passes:SQUARE"]}\'': (
        "tests/engine/passes/test_documented.py"
    ),
}

# All their commands are run, in the order of the page.
PAGES = ("how-to", "tune-graphs", "security", "life-cycle", "guests", "ci", "lora")
RECIPES = tuple(ROOT / "docs" / f"{name}.md" for name in PAGES)

WORDS = (
    *("source", "trace", "pass", "piece", "node_table", "relocation", "region", "descriptor"),
    *("artifact", "manifest", "blob", "request", "key", "factor", "store", "arena"),
    *("planner", "recorder", "player", "replay", "segment", "cubin", "profile", "matrix product"),
    *("custom op", "back end", "surface"),
    *("variant", "gemm store", "interpreter", "batch trace", "guest"),
)


def shown() -> list[tuple[Path, str]]:
    pages = [path for path in documents() if path not in RECIPES]
    return [(path, line) for path in pages for line in commands(path.read_text())]


@pytest.fixture(scope="module")
def place(demo_shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of docs/examples; all commands share the store in it.

    It has the demo: that a store without it gets it is tested in `end_to_end/` and on the wheel.
    """
    folder = tmp_path_factory.mktemp("documents")
    shutil.copytree(demo_shelf, folder / "store")
    shutil.copytree(ROOT / "docs" / "examples", folder, dirs_exist_ok=True)
    return folder


def run(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command.replace("$PWD", str(place)))
    own = {"VCC_CACHE_DIR": str(place / "store"), "VCC_TRUST_DIR": str(place / "trust")}
    own["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **own}
    if "--compile none" in command:  # said to need no compiler
        environment["PATH"] = ""
    return subprocess.run(
        [*VCC, *words[1:]] if words[0] == "vcc" else words,
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_every_command_in_a_document_is_run_somewhere() -> None:
    unknown = [f"{p.name}: {c}" for p, c in shown() if c not in {*EXECUTED, *TESTED_ELSEWHERE}]
    assert not unknown, "\n" + "\n".join(unknown)


def test_the_tables_list_only_what_documents_show() -> None:
    listed = {command for _, command in shown()}
    assert {*EXECUTED, *TESTED_ELSEWHERE} - listed == set()


@pytest.mark.parametrize("place", sorted(set(TESTED_ELSEWHERE.values())))
def test_the_places_that_test_commands_exist(place: str) -> None:
    assert (ROOT / place).exists()


def test_the_commands_of_the_tour_run_in_order(place: Path) -> None:
    for command in EXECUTED:
        done = run(command, place)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), f"{command} printed nothing"


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_the_recipes_run_in_order_and_print_what_is_shown(page: Path, place: Path) -> None:
    for command, shown in sessions(page.read_text()):
        done = run(command, place)
        said = f"{command}\n{done.stdout}\n{done.stderr}"
        fails = any(line.startswith("error:") for line in shown)
        assert (done.returncode != 0) == fails, said
        assert unsaid(shown, done.stdout + done.stderr) == [], said


def test_the_program_of_the_page_on_adapters_runs(place: Path) -> None:
    """After the page's own commands or alone: the adapter is made here if it is not there."""
    page = (ROOT / "docs" / "lora.md").read_text()
    (text,) = [body for language, body in FENCE.findall(page) if language == "python"]
    assert run("python make_adapter.py", place).returncode == 0
    (place / "use_adapter.py").write_text(text)
    done = run("python use_adapter.py", place)
    assert done.returncode == 0, done.stderr
    styled, plain = ast.literal_eval(done.stdout).values()
    assert (len(styled), len(plain)) == (16, 16)
    assert styled != plain


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken = [target for target in links(path.read_text()) if not (path.parent / target).exists()]
    assert not broken
    assert lost_anchors(path) == []


def test_every_document_is_reachable_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in links(index.read_text())}
    pages = set((ROOT / "docs").rglob("*.md")) - {index}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - linked) == []


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_the_word_in_one_sentence(word: str) -> None:
    sentence = glossary()[word.replace("_", " ")]
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0


def test_folders_of_the_architecture_exist() -> None:
    rows = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    places = [row.split("`")[1] for row in rows if row.startswith("| `")]
    assert len(places) > 10
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_every_engine_folder_stands_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = [p for p in (ROOT / "engine").iterdir() if (p / "__init__.py").exists()]
    assert [p.name for p in folders if f"`engine/{p.name}/`" not in text] == []


def test_the_parser_of_documents_sees_prompts_and_links() -> None:
    text = "[a](b.md#x) [c](https://d)\n```console\n$ vcc run \\\n  demo\nout\n```\n"
    assert commands(text) == ("vcc run demo",)
    assert sessions(text) == (("vcc run demo", ("out",)),)
    assert unsaid(("a … c", "d"), "a b c") == ["d"]
    assert links(text) == ("b.md",)
    assert anchors("# `vcc run`: one, two\n## A-b c\n") == {"vcc-run-one-two", "a-b-c"}
