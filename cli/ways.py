"""The ways a run can go: prompts, JSON lines, a talk on the terminal, one forward of a module."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vcc.cache.errors import UsageError
from vcc.cli.console import ask, columns, err, out, out_json, short, show_error
from vcc.cli.prompts import read_prompts
from vcc.engine.runtime.defaults import Overrides
from vcc.engine.runtime.report import account_lines, ledger_lines
from vcc.engine.session import Session

if TYPE_CHECKING:
    from vcc.engine.module_run import ModuleReport
    from vcc.engine.runtime.report import RunReport


class Report(Protocol):
    """What a run leaves behind."""

    @property
    def artifact(self) -> str | None:
        """Id of what ran; None when it is not stored."""

    def as_dict(self) -> dict[str, object]:
        """The JSON of `--json` and `--report`."""


@dataclass(frozen=True, slots=True)
class Said:
    """The options of `vcc run` that say what to answer; `lora` is for prompts that name none."""

    prompts: tuple[str, ...]
    file: Path | None
    chat: bool
    overrides: Overrides
    stdio: bool = False
    lora: str = ""

    @property
    def nothing(self) -> bool:
        """Whether there are no prompts among the options."""
        return not self.prompts and self.file is None


def go(session: Session, said: Said, *, as_json: bool) -> Report:
    """Run the way that the model and the options ask for, and print what comes out."""
    if said.stdio:
        from vcc.cli.stdio import answer_lines

        _check_stdio(said, as_json=as_json)
        return answer_lines(session, said.overrides, chat=said.chat)
    if session.settled.request.source.kind == "module" and said.nothing:
        return _forward(session, as_json=as_json)
    if said.chat and said.nothing and sys.stdin is not None and sys.stdin.isatty():
        return _talk(session, said, as_json=as_json)
    return _answer(session, said, as_json=as_json)


def _check_stdio(said: Said, *, as_json: bool) -> None:
    if not said.nothing or as_json:
        raise UsageError(
            "--stdio goes with neither prompts nor --json",
            "requests are lines of standard input, and answers are JSON lines",
            'leave them out: echo \'{"prompt": "Once"}\' | vcc run MODEL --stdio',
        )


def _answer(session: Session, said: Said, *, as_json: bool) -> RunReport:
    """Answer prompts; the text of a lone one is printed as it comes."""
    with session.ledger.phase("import"):
        from vcc.engine.answer import Asked, answer

    asked = Asked(read_prompts(said.prompts, said.file), said.overrides, said.chat, said.lora)
    _tell_adapters(session, unnamed=any(one.lora is None for one in asked.prompts))
    if as_json:
        found = answer(session, asked)
        out_json(found.as_dict())
        return found
    if len(asked.prompts) == 1:
        found = answer(session, asked, lambda index, text: out(text, end=""))
        out("")
    else:
        found = answer(session, asked)
        out(_answers_text(found))
    _lines([booted_line(session, found.artifact), *ledger_lines(found)])
    return found


def _tell_adapters(session: Session, *, unnamed: bool) -> None:
    """Say that of several adapters none is for prompts that name none."""
    names = [name for name, _ in session.adapters]
    if unnamed and len(names) > 1:
        session.events.note(
            f"prompts that name no adapter are answered without one: --lora gave {len(names)} "
            f"({', '.join(names):.120}); a prompt of --prompts FILE.json names its own"
        )


def _talk(session: Session, said: Said, *, as_json: bool) -> RunReport:
    """Ask for messages on the terminal until its end (Ctrl-D)."""
    from vcc.engine.conversation import Conversation

    _tell_adapters(session, unnamed=True)
    conversation = Conversation(session, said.overrides, said.lora)

    def show(part: str) -> None:
        if not as_json:
            out(part, end="")

    while (text := ask("> ")) is not None:
        if not text.strip():
            continue
        try:
            conversation.say(text, show)
        except UsageError as error:  # grown too long, say: the talk may go on
            show_error(error)
        show("\n")
    found = conversation.report()
    if as_json:
        out_json(found.as_dict())
    else:
        _lines([booted_line(session, found.artifact), *ledger_lines(found)])
    return found


def _forward(session: Session, *, as_json: bool) -> ModuleReport:
    from vcc.engine.module_run import run_module

    if session.batches is not None:
        session.events.note("a module's forward has no batches: --trace-batches stays empty")
    found = run_module(session)
    if as_json:
        out_json(found.as_dict())
        return found
    rows = [
        (one.name, one.dtype, "x".join(map(str, one.shape)), one.sha256[:16])
        for one in found.outputs
    ]
    out(columns([("output", "dtype", "shape", "sha256"), *rows]))
    counted = account_lines(found.phases, found.seconds, found.counters)
    _lines([booted_line(session, found.artifact), *counted])
    return found


def booted_line(session: Session, artifact: str | None) -> str:
    """What ran: the artifact's id and title; of a decoder also its graph mode and its graphs."""
    trail = session.trail
    if trail.loaded is None:  # a talk that ended before its first message
        return "artifact  none was booted"
    name = "not stored" if artifact is None else short(artifact)
    line = f"artifact  {name}  {trail.loaded.manifest.title}"
    runner = getattr(trail.booted, "runner", None)
    if runner is None:
        return line
    return f"{line}  mode {runner.mode.value}  graphs {runner.gate.captures}"


def _lines(lines: list[str]) -> None:
    for line in lines:
        err(line)


def _answers_text(found: RunReport) -> str:
    blocks = []
    for index, answer in enumerate(found.answers):
        ids = " ".join(map(str, answer.token_ids))
        head = f"[{index}]" if answer.prompt is None else f"[{index}] {answer.prompt}"
        blocks.append(f"{head}\n{ids if answer.text is None else answer.text}\n")
    return "\n".join(blocks)
