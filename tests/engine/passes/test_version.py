"""Versions of passes: they cover source, helpers and parameters, or the pass is refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from torch.fx import GraphModule

from vcc.cache.errors import UsageError
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.passes import pattern, version
from vcc.engine.passes.apply import PASSES, version_pairs
from vcc.engine.passes.base import Outcome, PassContext, builtin, define
from vcc.engine.passes.version import rule_version, version_of


def nothing(graph: GraphModule, context: PassContext) -> Outcome:
    return Outcome(0)


def test_our_versions_are_the_same_with_and_without_torch() -> None:
    without = {rule.name: rule_version(rule) for rule in PASS_RULES}
    assert {one.name: one.version for one in PASSES} == without
    assert version_pairs(PASSES) == tuple((f"pass.{one.name}", one.version) for one in PASSES)
    assert len(set(without.values())) == len(without)


def test_a_row_names_the_file_of_its_pass() -> None:
    files = {rule.name: rule.file for rule in PASS_RULES}
    for one in PASSES:
        assert Path(one.rewrite.__code__.co_filename).name == files[one.name]


def test_a_changed_source_is_another_version(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("one")
    before = version_of([file])
    file.write_text("two")
    assert version_of([file]) != before


def test_a_changed_helper_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = version_of([])
    for name in version.SHARED:
        (tmp_path / name).write_text("changed")
    monkeypatch.setattr(version, "FOLDER", tmp_path)
    assert version_of([]) != before


def test_parameters_are_part_of_the_version() -> None:
    versions = [
        define("mine", nothing, parameters=parameters).version
        for parameters in (None, {"limit": 1}, {"limit": 2}, {"limit": True}, {"limit": "1"})
    ]
    assert len(set(versions)) == len(versions)
    assert define("mine", nothing).version == versions[0]


def test_further_sources_are_part_of_the_version() -> None:
    assert define("mine", nothing, sources=[pattern]).version != define("mine", nothing).version


def test_a_builtin_takes_version_and_parameters_from_its_row() -> None:
    name = PASSES[0].name
    assert builtin(name, nothing).version == PASSES[0].version


LIMIT = 3
PARTIAL = functools.partial(nothing)


def closing(limit: int) -> Any:
    def rewrite(graph: GraphModule, context: PassContext) -> Outcome:
        return Outcome(limit)

    return rewrite


UNCOVERED = {
    "a closure": (closing(3), "closes over limit"),
    "a partial call": (PARTIAL, "is a partial"),
    "an object": (object(), "is a object"),
}


@pytest.mark.parametrize("name", UNCOVERED)
def test_a_rewrite_with_values_that_no_digest_covers_is_refused(name: str) -> None:
    rewrite, why = UNCOVERED[name]
    with pytest.raises(UsageError, match="no complete version") as caught:
        define("mine", rewrite)
    assert why in caught.value.why
    assert "parameters" in caught.value.hint


@pytest.mark.parametrize("name", ["eliminate_noops", "two words", ""])
def test_a_name_that_is_taken_or_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        define(name, nothing)
