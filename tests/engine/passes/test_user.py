"""Passes of the user's own: how they are named, where they run, and what covers them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine import user_passes
from vcc.engine.config.types import CompilationConfig, PassConfig
from vcc.engine.passes.user import chosen, load
from vcc.engine.user_passes import source_entries

MINE = """
from vcc.engine.passes.base import Outcome, define
from {helper} import MANY

def count(graph, context):
    return Outcome(MANY)

COUNT = define("count", count)
AGAIN = define("count", count)
HIDDEN = 3
"""

ON = PassConfig(eliminate_noops=True, eliminate_dead_code=True)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of passes in the working directory, with a helper module; its name."""
    name = "mine_" + str(abs(hash(request.node.name)))
    (tmp_path / f"{name}_help.py").write_text("MANY = 3\n")
    (tmp_path / f"{name}.py").write_text(MINE.format(helper=f"{name}_help"))
    monkeypatch.chdir(tmp_path)
    return name


def test_a_pass_of_a_file_runs_before_dead_code(mine: str) -> None:
    found = chosen(CompilationConfig(pass_config=ON, user_passes=(f"{mine}:COUNT",)))
    names = [one.name for one in found]
    assert names.index("count") == names.index("eliminate_dead_code") - 1
    off = CompilationConfig(user_passes=(f"{mine}:COUNT",))
    assert [one.name for one in chosen(off)] == ["count"]


def test_an_installed_pass_is_named_by_its_entry_point(
    mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = metadata.EntryPoint("counting", f"{mine}:COUNT", user_passes.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    assert [one.name for one in load(["counting"])] == ["count"]
    assert source_entries(["counting"])["user_pass.counting"]
    with pytest.raises(ConfigError, match='no installed pass "countin"') as caught:
        load(["countin"])
    assert 'did you mean "counting"' in caught.value.hint


def test_the_key_covers_the_file_and_what_it_imports(mine: str, tmp_path: Path) -> None:
    name = f"{mine}:COUNT"
    found = [source_entries([name])]
    for file in (tmp_path / f"{mine}_help.py", tmp_path / f"{mine}.py"):
        file.write_text(file.read_text() + "\n")
        found.append(source_entries([name]))
    assert len({entry[f"user_pass.{name}"] for entry in found}) == 3


def test_f4_what_is_no_pass_is_refused(mine: str) -> None:
    """F4: a plain function, not wrapped as a pass."""
    with pytest.raises(UsageError, match="count is not a pass") as caught:
        load([f"{mine}:count"])
    assert 'define("count", count)' in caught.value.hint
    with pytest.raises(UsageError, match="3 is not a pass"):
        load([f"{mine}:HIDDEN"])


WRONG = {
    "no module": ("nowhere_at_all:X", "cannot be loaded"),
    "no name": ("{mine}:NOWHERE", "cannot be loaded"),
    "no form": ("a b:c", "names no pass"),
    "no entry point": ("plainname", "no installed pass"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_pass_that_cannot_be_loaded_is_an_error(mine: str, case: str) -> None:
    text, what = WRONG[case]
    with pytest.raises(ConfigError, match=what):
        load([text.format(mine=mine)])


def test_two_passes_of_one_name_are_refused(mine: str) -> None:
    with pytest.raises(ConfigError, match="two passes are called count"):
        load([f"{mine}:COUNT", f"{mine}:AGAIN"])
