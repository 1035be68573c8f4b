"""A guest's command: the program, the Python that will run it, its script and its name."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.digest import Digest
from vcc.cache.errors import UsageError
from vcc.cache.named_files import read_named

HEAD = 1024
MAX_SCRIPT = 1 << 24

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LONG_SHEBANG = re.compile(r"'''exec' +(\"[^\"]+\"|\S+) ")


@dataclass(frozen=True, slots=True)
class Command:
    """What a user asked for.

    Attributes:
        words: as they were given.
        program: path of the file that is started.
        interpreter: the Python that will run it.
        assumed: the interpreter is not named by the command; it is the first on PATH, else ours.
        name: of the script or module.
        script: digest of the script's text; "none" where there is no file.
    """

    words: tuple[str, ...]
    program: str
    interpreter: str
    assumed: bool
    name: str
    script: str


def read_command(words: Sequence[str]) -> Command:
    """Understand a command.

    Raises:
        UsageError: there is no such program.
    """
    program = shutil.which(words[0])
    if program is None:
        raise UsageError(
            f"cannot run {words[0]}",
            "no such program on PATH",
            "vcc run -- python train.py; everything after -- is the command",
        )
    found = _interpreter(program, words)
    named = _named(words, program)
    assumed = found or shutil.which("python3") or sys.executable
    return Command(tuple(words), program, assumed, found is None, *named)


def _interpreter(program: str, words: Sequence[str]) -> str | None:
    """The program itself, that of its first line, or one that it is told to start."""
    for word in (program, *words[1:]):
        if not _PYTHON.match(Path(word).name):
            continue
        path = shutil.which(word)
        if path is not None:
            return path
    return _of_shebang(program)


def _of_shebang(program: str) -> str | None:
    try:
        with open(program, "rb") as stream:
            head = stream.read(HEAD).decode("utf-8", "replace")
    except OSError:
        return None
    if not head.startswith("#!"):
        return None
    long = _LONG_SHEBANG.search(head)  # pip writes this where the path is too long for a line
    words = shlex.split(long[1] if long else head[2:].split("\n", 1)[0])
    names = words[1:] if words and Path(words[0]).name == "env" else words[:1]
    name = next((one for one in names if not one.startswith("-")), "")
    return shutil.which(name) if _PYTHON.match(Path(name).name) else None


def _named(words: Sequence[str], program: str) -> tuple[str, str]:
    """Name and digest of what runs: a script, a module (without a digest), or the program."""
    at = next((n for n, word in enumerate(words) if _PYTHON.match(Path(word).name)), None)
    if at is None:
        return Path(program).name, _digest(Path(program))
    rest = list(words[at + 1 :])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-m", "-c") and rest:
            text = Digest.of(rest[0].encode("utf-8", "surrogateescape")).hex
            return (rest[0], "none") if option == "-m" else ("-c", text)
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    if not rest:
        return Path(program).name, "none"
    return Path(rest[0]).name, _digest(Path(rest[0]))


def _digest(file: Path) -> str:
    try:
        data = read_named(file, MAX_SCRIPT, pipes=False)  # the command reads a pipe, once
    except OSError:
        return "none"
    return "none" if len(data) > MAX_SCRIPT else Digest.of(data).hex
