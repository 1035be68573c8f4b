"""The rules of docs/architecture.md, each a short test that lists its offenders."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from support.rules import (
    asserts,
    backward_imports,
    build_side_in_runtime,
    code_from_data,
    consoles_outside_the_console,
    ctypes_outside_native,
    definitions_without_docstring,
    environment_outside_its_doors,
    long_files,
    modules_without_docstring,
    prints_and_exits,
    private_torch,
    shells,
    torch_or_ctypes_in_cache,
)
from support.sources import ROOT, Module, modules, parse

TORCH_FREE = (
    *("cli.main", "engine.models.source", "engine.models.architectures"),
    *("engine.models.bindings", "engine.runtime.dispatch", "engine.native"),
    *("engine.request", "engine.session"),
    *("engine.graphs.table.decode", "engine.graphs.table.encode"),
)


def lines(bad: list[str]) -> str:
    return "\n" + "\n".join(bad)


def test_imports_go_from_cli_to_engine_to_cache() -> None:
    bad = backward_imports(modules())
    assert not bad, lines(bad)


def test_cache_knows_neither_torch_nor_ctypes() -> None:
    bad = torch_or_ctypes_in_cache(modules())
    assert not bad, lines(bad)


def test_the_run_side_never_reaches_the_build_side() -> None:
    bad = build_side_in_runtime(modules())
    assert not bad, lines(bad)


def test_the_environment_has_two_doors() -> None:
    bad = environment_outside_its_doors(modules())
    assert not bad, lines(bad)


def test_ctypes_has_one_door() -> None:
    bad = ctypes_outside_native(modules())
    assert not bad, lines(bad)


def test_the_console_has_one_door() -> None:
    bad = consoles_outside_the_console(modules())
    assert not bad, lines(bad)


def test_private_torch_lives_in_the_shim() -> None:
    bad = private_torch(modules())
    assert not bad, lines(bad)


def test_no_code_comes_from_data() -> None:
    bad = code_from_data(modules())
    assert not bad, lines(bad)


def test_no_shell_is_started() -> None:
    bad = shells(modules())
    assert not bad, lines(bad)


def test_no_assert_outside_tests() -> None:
    bad = asserts(modules())
    assert not bad, lines(bad)


def test_engine_and_cache_never_print_or_exit() -> None:
    bad = prints_and_exits(modules())
    assert not bad, lines(bad)


def test_no_file_is_longer_than_300_lines() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    nothing = ast.parse("")  # a length needs no tree
    tests = (Module(str(path.relative_to(ROOT)), path.read_text(), nothing) for path in files)
    bad = long_files((*modules(), *tests))
    assert not bad, lines(bad)


def test_every_module_says_what_it_is_for() -> None:
    bad = modules_without_docstring(modules())
    assert not bad, lines(bad)


def test_every_public_function_and_class_says_what_it_is_for() -> None:
    bad = definitions_without_docstring(modules())
    assert not bad, lines(bad)


def test_the_resolve_path_imports_no_torch() -> None:
    """`vcc --help`, `inspect cache` and finding an artifact run before torch is wanted."""
    listed = [f"vcc.{name}" for name in TORCH_FREE]
    listed += [m.name for m in modules() if m.path.startswith(("cache/", "engine/config/"))]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules: sys.exit(name + ' imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *listed], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


BREAKS = [
    (backward_imports, "cache/x.py", "from vcc.engine import native"),
    (backward_imports, "engine/x.py", "import vcc.cli.main"),
    (torch_or_ctypes_in_cache, "cache/x.py", "def f():\n    import torch"),
    (build_side_in_runtime, "engine/runtime/x.py", "from vcc.engine import passes"),
    (build_side_in_runtime, "engine/runtime/x.py", "from ..torch_shim import inductor"),
    (environment_outside_its_doors, "cli/x.py", "from os import environ as e\ne['A']"),
    (ctypes_outside_native, "engine/x.py", "from ctypes import CDLL"),
    (consoles_outside_the_console, "cli/x.py", "from rich.console import Console"),
    (private_torch, "engine/x.py", "from torch import nn\nnn._reduction"),
    (private_torch, "engine/x.py", "load('torch._inductor')"),
    (code_from_data, "engine/x.py", "import torch as t\nt.load('f')"),
    (code_from_data, "cli/x.py", "exec('1')"),
    (code_from_data, "cache/x.py", "from pickle import loads"),
    (shells, "engine/x.py", "run('ls', shell=True)"),
    (asserts, "cli/x.py", "assert 1"),
    (prints_and_exits, "engine/x.py", "print(1)"),
    (long_files, "cli/x.py", "x = 1\n" * 301),
    (modules_without_docstring, "cli/x.py", "x = 1"),
    (definitions_without_docstring, "cli/x.py", "def f(): ..."),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKS, ids=lambda v: getattr(v, "__name__", ""))
def test_each_rule_can_fail(rule, path: str, text: str) -> None:
    assert rule([parse(path, text)])


def test_allowed_names_pass() -> None:
    text = "import torch\ntorch.__version__\nmodel.eval()\nx.print()\nrun('ls', shell=False)"
    rules = {rule for rule, _, _ in BREAKS} - {modules_without_docstring}
    assert [bad for rule in rules for bad in rule([parse("engine/x.py", text)])] == []
