"""vcc run --stdio: JSON lines on standard input and output, for a program that starts vcc."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vcc.cli.console import out_line

if TYPE_CHECKING:
    from vcc.engine.runtime.defaults import Overrides
    from vcc.engine.runtime.report import RunReport
    from vcc.engine.session import Session


def answer_lines(session: Session, overrides: Overrides, *, chat: bool) -> RunReport:
    """Boot, then answer requests until standard input ends.

    Args:
        session: the model, the store, the accounts.
        overrides: how to generate where a request does not say.
        chat: put texts into the chat template where a request does not say.

    Raises:
        UsageError: the model answers no prompts.
        MissingArtifact, IntegrityError, CompileError: see `open_session`.
    """
    with session.ledger.phase("import"):
        from vcc.engine.answer import check_answers
        from vcc.engine.runtime.report import make_report
        from vcc.engine.serving import Serving
        from vcc.engine.session import open_session
        from vcc.engine.stdio import Descriptor, Stdio, read_lines
    source = session.settled.request.source
    check_answers(source)
    ready = open_session(session)
    serving = Serving(ready.booted.runner, source)
    with session.ledger.phase("generate"):
        lines = () if sys.stdin is None else read_lines(Descriptor(sys.stdin.fileno()).readline)
        Stdio(serving, out_line, overrides, chat=chat).run(lines)
    ready.booted.account(session.counters)
    return make_report(
        session.ledger,
        session.counters,
        [],
        artifact=ready.artifact,
        first_token_seconds=None,
        notes=session.notes,
        lacking=ready.booted.lacking,
    )
