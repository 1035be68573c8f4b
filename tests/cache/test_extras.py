"""What hints tell people to install is what the extras ask for."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from support.sources import ROOT

from vcc.cache.extras import CLIENTS, REQUIREMENTS, install

tomllib = pytest.importorskip("tomllib")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_requirements_are_those_of_the_extras():
    lines = {line for extra in ("hf", "remote", "sign") for line in EXTRAS[extra]}
    assert set(REQUIREMENTS.values()) == lines
    assert all(Requirement(line).name == name for name, line in REQUIREMENTS.items())
    assert {REQUIREMENTS[name] for name in CLIENTS} == set(EXTRAS["remote"])


def test_a_hint_is_a_command_with_the_versions():
    assert install("jinja2") == "pip install 'jinja2>=3.1'"
    assert install("oras", "requests") == "pip install 'oras>=0.2.43' 'requests>=2.32'"


def test_nothing_tells_to_install_vcc_by_its_name():
    """The vcc on PyPI is another project."""
    folders = ("cli/**/*.py", "engine/**/*.py", "cache/**/*.py", "docs/**/*.md", "docs/examples/*")
    files = [path for one in (*folders, "*.md", "action.yml") for path in ROOT.glob(one)]
    texts = {str(path): path.read_text() for path in files if path.is_file()}
    assert len(texts) > 300
    found = re.compile(r"vcc\[|pip install ['\"]?vcc\b")
    assert not [name for name, text in texts.items() if found.search(text)]
