"""docs/cli.md is what the commands do: options, exit codes, error ids, JSON shapes."""

from __future__ import annotations

import importlib
import json
import re

import pytest
from support.cli_reference import FROZEN, PAGE, commands, differences, rewritten, shapes

from vcc.cache.errors import Exit, VccError
from vcc.engine.module_run import ModuleReport, Output

TEXT = PAGE.read_text(encoding="utf-8")
SHAPES = shapes(TEXT)

WITH_ERRORS = (
    *("cache.gate", "cache.pack.form", "cache.remote.http"),
    *("cache.trust.publickey", "cache.trust.signature", "engine.runtime.elf"),
    *("cache.blob", "cache.canonical", "cache.expose", "cache.manifest", "cache.refs"),
)
"""Modules with error ids of their own that the command line does not import at once."""


def test_option_tables_are_made_from_the_commands():
    assert rewritten(TEXT) == TEXT


def test_every_frozen_command_with_options_is_on_the_page():
    frozen = {name for name, options in json.loads(FROZEN.read_text()).items() if options}
    assert {name for name, _ in commands()} == frozen - {"vcc"}


def test_exit_codes_are_those_of_the_code():
    rows = re.findall(r"^\| (\d+) \| ([A-Z]+) \|", TEXT, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(int(one), one.name) for one in Exit]


def test_every_error_id_stands_at_its_exit_code():
    for module in WITH_ERRORS:
        importlib.import_module(f"vcc.{module}")
    waiting, missing = [VccError], []
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| {int(kind.exit)} |"))
        if kind.__module__.startswith("vcc.") and f"`{kind.id}`" not in row:
            missing.append(f"{kind.__name__}: {kind.id} at {int(kind.exit)}")
    assert missing == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compile", ("compile", "demo")),
        ("dry run", ("compile", "demo", "--dry-run")),
        ("run", ("run", "demo", "--prompt", "a", "--max-new-tokens", "2")),
        ("cache", ("inspect", "cache")),
        ("cache ls", ("cache", "ls")),
        ("cache rm", ("cache", "rm", "demo")),
        ("cache rm", ("cache", "prune", "--max-size", "1", "--dry-run")),
        ("cache verify", ("cache", "verify")),
        ("cache stats", ("cache", "stats")),
        ("cache du", ("cache", "du")),
        ("cache unlock", ("cache", "unlock")),
        ("artifact", ("inspect", "artifact", "demo")),
        ("key", ("inspect", "key", "demo")),
        ("explain", ("explain", "demo", "--dtype", "fp32")),
    ],
)
def test_json_has_the_shape_of_the_page(vcc, engine, name, words):
    assert vcc("compile", "demo").code == 0
    done = vcc(*words, "--json")
    assert done.code == 0
    assert differences(SHAPES[name], done.json) == []


def test_json_of_two_artifacts_has_the_shape_of_the_page(vcc, engine):
    ids = [vcc("compile", "demo", "--mode", m, "--json").json["artifact"] for m in ("full", "none")]
    assert differences(SHAPES["diff"], vcc("diff", *ids, "--json").json) == []
    assert differences(SHAPES["artifact key"], vcc("inspect", "key", ids[0], "--json").json) == []


def test_the_summary_of_a_trace_has_the_shape_of_the_page(vcc, engine, tmp_path):
    file = tmp_path / "trace"
    vcc("run", "demo", "--prompt", "a", "--max-new-tokens", "2", "--trace-batches", str(file))
    assert differences(SHAPES["batches"], vcc("inspect", "batches", str(file), "--json").json) == []


def test_an_error_has_the_shape_of_the_page(vcc, engine):
    done = vcc("run", "demo", "--dtype", "bf61", "--prompt", "a", "--json")
    assert done.code == Exit.USAGE
    assert differences(SHAPES["error"], done.json) == []
    done = vcc("run", "demo", "--require-warm", "--prompt", "a", "--json")
    assert done.code == Exit.NEGATIVE
    assert differences(SHAPES["not warm"], done.json) == []


def test_the_report_of_a_module_has_the_shape_of_the_page():
    report = ModuleReport(None, (Output("output_0", "float32", (2,), "0"),), {}, 0.0, {}, ())
    assert differences(SHAPES["forward"], report.as_dict()) == []


def test_a_key_more_or_less_is_a_difference():
    assert differences({"a": ""}, {"a": 1, "b": 2}) == ["$.b is not on the page"]
    assert differences({"a": "", "b": ""}, {"a": 1}) == ["$.b is on the page only"]
    assert differences({"a": [{"*": {"b": ""}}]}, {"a": [{"x": {}}]}) == [
        "$.a[].*.b is on the page only"
    ]
