"""docs/config.md agrees with the code."""

from __future__ import annotations

import re

from support.config_reference import PAGE, rewritten

from vcc.engine.config.artifacts import ARTIFACT_TABLE
from vcc.engine.config.levels import LEVEL_TABLE, PASS_RULES
from vcc.engine.config.parse import parse_config


def test_field_tables_are_made_from_the_dataclasses() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == rewritten(page)


def test_levels_and_artifacts_on_the_page_are_the_tables_in_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for level, row in LEVEL_TABLE.items():
        assert f"| `-{level.name}` | {row.mode.name} | {row.graphs.value} |" in page
    for (mode, platform), rule in ARTIFACT_TABLE.items():
        held = ", ".join(one.value for one in rule.holds) or "nothing: refused"
        assert f"| {mode.name} | {platform.value} | {held} |" in page
    for rule in PASS_RULES:
        assert f"`{rule.name}`" in page


def test_the_page_says_from_which_level_each_pass_is_on() -> None:
    (said,) = [one for one in PAGE.read_text().splitlines() if "are on from `-O1`." in one]
    first, _, rest = said.partition(" are on from `-O1`.")
    named = rest.partition(" are on when they are named")[0]
    by_level: dict[str, set[str]] = {"O1": set(), "O2": set(), "": set()}
    for rule in PASS_RULES:
        by_level[rule.from_level.name if rule.from_level else ""].add(rule.name)
    assert set(re.findall(r"`(\w+)`", first)) == by_level["O1"]
    assert set(re.findall(r"`(\w+)`", named)) == by_level[""]
    assert all(name.startswith("fuse_") for name in by_level["O2"])


def test_the_example_on_the_page_is_read() -> None:
    page = PAGE.read_text(encoding="utf-8")
    example = page.split("```json")[1].split("```")[0]
    assert parse_config(example).capture_sizes == (1, 2, 4, 8)
