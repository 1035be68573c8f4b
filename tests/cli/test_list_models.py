"""vcc compile --list-models: the table of the page, for people and for programs."""

from __future__ import annotations

import json

import pytest

from vcc.cli import main
from vcc.engine.models.architecture_table import ARCHITECTURES, REFUSED


def test_every_architecture_is_listed_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert int(main.run(["compile", "--list-models"])) == 0
    found = capsys.readouterr().out.splitlines()
    assert [line for line in found if line in ARCHITECTURES] == list(ARCHITECTURES)
    assert all(any(line.strip().startswith(f"{name}: ") for line in found) for name in REFUSED)


@pytest.mark.parametrize("words", [["--list-models", "--json"], ["--json", "--list-models"]])
def test_programs_get_one_object(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert int(main.run(["compile", *words])) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["architecture"] for one in found["models"]] == list(ARCHITECTURES)
    assert found["refused"] == REFUSED
    experts = next(one for one in found["models"] if one["architecture"] == "Qwen2MoeForCausalLM")
    assert experts["pieces"] == 4
