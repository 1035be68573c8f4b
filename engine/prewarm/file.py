"""Reading a prewarm file: TOML, then every table and field checked, then the matrix of builds.

[defaults]                 fields for every build
[[build]]                  model, and fields of its own; target, dtype and mode may be lists
[[build.override]]         when = { dtype = "fp32" }, and fields for the combinations it names
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcc.cache.errors import UsageError
from vcc.cache.named_files import read_named
from vcc.engine.prewarm.matrix import Cell, Tables, combined
from vcc.engine.prewarm.places import Place, places
from vcc.engine.prewarm.problems import BrokenFile, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE = 1 << 20
MAX_BUILDS = 10_000

_AT = re.compile(r"\s*\(at line (\d+), column (\d+)\)\s*\Z")


def read_file(file: Path) -> tuple[Cell, ...]:
    """The builds of a prewarm file, in its order.

    Raises:
        UsageError: the file is not there or cannot be read.
        BrokenFile: what stands in it is wrong.
    """
    text = _text(file)
    name = str(file)
    tables = _parsed(name, text)
    try:
        where = places(text)
    except RecursionError as error:
        raise BrokenFile(name, (Problem(1, 1, str(error)),)) from error
    cells, problems = combined(Tables(tables, where))
    if not problems and not cells:
        problems = [Problem(1, 1, "there is no build in it: write [[build]] and a model")]
    if not problems and len(cells) > MAX_BUILDS:
        problems = [Problem(1, 1, f"{len(cells)} builds are more than {MAX_BUILDS}")]
    if problems:
        raise BrokenFile(name, sorted(problems, key=lambda one: (one.line, one.column)))
    return cells


def _text(file: Path) -> str:
    try:
        data = read_named(file, MAX_FILE)
    except OSError as error:
        raise UsageError(
            f"cannot read {file}", str(error.strerror), "vcc prewarm vcc.toml; docs/ci.md has one"
        ) from error
    if len(data) > MAX_FILE:
        raise UsageError(f"{file} is no prewarm file", f"it is larger than {MAX_FILE} bytes")
    try:
        # Line ends become \n, as every editor counts them.
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        at = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        problem = Problem(at.line, at.column, "this is not UTF-8 text")
        raise BrokenFile(str(file), (problem,)) from error


def _parsed(name: str, text: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = tomllib.loads(text)
        return found
    except tomllib.TOMLDecodeError as error:
        raise BrokenFile(name, (_syntax(str(error), text),)) from error
    except RecursionError as error:
        problem = Problem(1, 1, "values inside each other, deeper than can be read")
        raise BrokenFile(name, (problem,)) from error


def _syntax(message: str, text: str) -> Problem:
    """The parser's own message, its place taken out of it."""
    at = _AT.search(message)
    if at is not None:
        return Problem(int(at[1]), int(at[2]), message[: at.start()])
    lines = text.split("\n")
    plain = message.removesuffix(" (at end of document)")
    return Problem(len(lines), len(lines[-1]) + 1, f"{plain}: the file ends here")
