"""All options are frozen: changing one means changing this table, and the changelog with it.

Regenerate with: python tests/cli/test_options.py
"""

from __future__ import annotations

import json
from pathlib import Path

import typer.main

from vcc.cli.app import app_for
from vcc.cli.options import check_choice, complete, complete_model

FROZEN = Path(__file__).with_name("options.json")


def options() -> dict[str, dict[str, str]]:
    """Command -> option names -> metavar, default, and whether it repeats."""
    found = {}
    waiting = [("vcc", typer.main.get_command(app_for())), ("vcc run --", after_dashes("run"))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {n}", c) for n, c in getattr(command, "commands", {}).items()]
        shown = [one for one in command.params if "completion" not in str(one.opts)]
        found[name] = {" ".join(one.opts): _shape(one) for one in shown}
    return dict(sorted(found.items()))


def after_dashes(name: str):
    """The command that a line with `--` means."""
    return typer.main.get_command(app_for((name, "--"))).commands[name]


def _shape(one) -> str:
    default = f"default {one.default}" if type(one.default) in (str, int) else ""
    repeats = "repeatable" if getattr(one, "multiple", False) else ""
    return ", ".join(part for part in (one.metavar or "switch", default, repeats) if part)


def test_options_are_as_frozen():
    assert options() == json.loads(FROZEN.read_text())


def test_every_option_has_help():
    waiting = [typer.main.get_command(app_for()), after_dashes("run")]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        assert command.help
        assert all(one.help for one in command.params), command.name


def test_models_complete_to_the_demo_and_to_directories_with_a_config(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "config.json").write_text("{}")
    assert complete_model("d") == ["demo"]
    assert complete_model(f"{tmp_path}/") == [f"{tmp_path}/one"]
    assert complete_model(f"{tmp_path}/o") == [f"{tmp_path}/one"]
    assert complete_model("/no/such/place/x") == []


def test_words_complete_by_their_beginning():
    assert complete(("full", "none"))("f") == ["full"]


def test_a_known_choice_passes():
    check_choice("--golden", "all", ("off", "all"))


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(options(), indent=1) + "\n")
