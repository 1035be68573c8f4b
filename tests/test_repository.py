"""The repository's own promises: pins are complete, and every way to check runs one command."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.sources import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
INSTALLED_EXTRAS = ("hf", "dev")


def pins(python: str) -> dict[str, Requirement]:
    """Constraints that hold for a Python version, by canonical name."""
    environment = default_environment() | {"python_version": python}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    held = [pin for pin in found if not pin.marker or pin.marker.evaluate(environment)]
    assert len({canonicalize_name(pin.name) for pin in held}) == len(held)
    return {canonicalize_name(pin.name): pin for pin in held}


def declared() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for e in INSTALLED_EXTRAS for line in extras[e])]
    return [Requirement(line) for line in lines]


def needed() -> set[str]:
    """Names of everything that `vcc[hf,dev]` brings into this environment."""
    waiting, seen = declared(), set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name not in seen:
            seen.add(name)
            try:
                waiting += [Requirement(line) for line in requires(name) or ()]
            except PackageNotFoundError:
                continue
    return seen


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.13"])
def test_every_declared_dependency_is_pinned_inside_its_range(python: str) -> None:
    held = pins(python)
    environment = default_environment() | {"python_version": python}
    for requirement in declared():
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        pin = held[canonicalize_name(requirement.name)]
        (version,) = [spec.version for spec in pin.specifier if spec.operator == "=="]
        assert requirement.specifier.contains(version), f"{pin} is outside {requirement}"


def test_what_dependencies_bring_is_pinned_too() -> None:
    held = pins(f"{sys.version_info[0]}.{sys.version_info[1]}")
    loose = {n for n in needed() - held.keys() if not n.startswith(("nvidia-", "cuda-"))}
    assert not loose, f"add to constraints.txt: {sorted(loose)}"


def test_torch_is_no_build_requirement() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert not [line for line in build if Requirement(line).name == "torch"]


def test_hooks_run_the_commands_of_make() -> None:
    hooks = re.findall(r"entry: \.venv/bin/(.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(hooks) == 4
    assert [command for command in hooks if f"$(BIN)/{command}" not in MAKEFILE] == []


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert re.search(r"make .*\btest\b", text)


def test_targets_of_the_help_exist() -> None:
    (recipe,) = re.findall(r"^help:\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)
    words = [re.match(r'\t@echo "([a-z -]+?)  ', line).group(1) for line in recipe.splitlines()]
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {name for word in words for name in word.split()} - targets == set()
