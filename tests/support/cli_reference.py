"""The option tables of docs/cli.md, made from the command line itself.

Rewrite them with `python tests/support/cli_reference.py` from the top of the repository.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from vcc.cli.app import app_for

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
FROZEN = ROOT / "tests" / "cli" / "options.json"

_SHAPE = re.compile(r"<!-- shape: ([\w ]+) -->\n```json\n(.*?)```", re.DOTALL)


def commands() -> Iterator[tuple[str, Any]]:
    """Full name and click command of everything that takes options."""
    waiting = [("vcc", typer.main.get_command(app_for()))]
    yield "vcc run --", after_dashes("run")
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", {})
        waiting += [(f"{name} {word}", one) for word, one in inner.items()]
        if not inner:
            yield name, command


def after_dashes(name: str) -> Any:
    """The command that a line with `--` means."""
    command: Any = typer.main.get_command(app_for((name, "--")))
    return command.commands[name]


def table(name: str, command: Any) -> str:
    """One Markdown table: option, value, meaning. Names and values are the frozen ones."""
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))[name]
    helps = {" ".join(one.opts): one.help for one in command.params}
    rows = ["| option | value | meaning |", "|---|---|---|"]
    for option, value in frozen.items():
        names = ", ".join(f"`{word}`" for word in option.split()) if "-" in option else "argument"
        cell = "" if value == "switch" else f"`{value}`".replace("|", "\\|")
        rows.append(f"| {names} | {cell} | {helps[option]} |")
    return "\n".join(rows)


def rewritten(page: str) -> str:
    """The page with every marked table made anew."""
    for name, command in commands():
        start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        block = f"{start}\n{table(name, command)}\n{end}"
        page, count = re.subn(
            f"{re.escape(start)}.*?{re.escape(end)}", lambda _, b=block: b, page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"docs/cli.md has {count} tables of {name}")
    return page


def shapes(page: str) -> dict[str, Any]:
    """The JSON shapes of the page by name."""
    return {name: json.loads(text) for name, text in _SHAPE.findall(page)}


def differences(shape: Any, found: Any, at: str = "$") -> list[str]:
    """Where a JSON value is not of a shape; the key `*` stands for any keys."""
    if isinstance(shape, list) and isinstance(found, list):
        return [line for one in found for line in differences(shape[0], one, f"{at}[]")]
    if not isinstance(shape, dict):
        return []
    if not isinstance(found, dict):
        return [f"{at} is a {type(found).__name__}, the page has an object"]
    if "*" in shape:
        return [
            line for key, one in found.items() for line in differences(shape["*"], one, f"{at}.*")
        ]
    lines = [f"{at}.{key} is not on the page" for key in found.keys() - shape.keys()]
    lines += [f"{at}.{key} is on the page only" for key in shape.keys() - found.keys()]
    for key in shape.keys() & found.keys():
        lines += differences(shape[key], found[key], f"{at}.{key}")
    return sorted(lines)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder has a module named as one of the standard library
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
