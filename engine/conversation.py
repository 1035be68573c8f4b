"""Conversation: one booted model, and turns that each see all turns before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vcc.engine.answer import Growing, check_answers, hear
from vcc.engine.prompt import Prompt
from vcc.engine.runtime.chat import Message, render_chat
from vcc.engine.runtime.defaults import Overrides, resolve_generation
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.report import Answer, RunReport, make_report
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.tokenizer import check_text, open_tokenizer
from vcc.engine.session import Session, open_session


class Conversation:
    """A chat with a model.

    Args:
        session: the model, the store, the accounts.
        overrides: how to generate.
        lora: adapter of all turns; empty for none.

    Raises:
        ModelError: the model has no tokenizer or no chat template.
        MissingArtifact, IntegrityError, CompileError: see `open_session`.
    """

    def __init__(self, session: Session, overrides: Overrides, lora: str = "") -> None:
        source = session.settled.request.source
        check_answers(source)
        with session.ledger.phase("resolve"):
            self._defaults = resolve_generation(source.generation, overrides)
            self._tokenizer = open_tokenizer(source.tokenizer)
            render_chat(self._tokenizer, [{"role": "user", "content": "?"}])  # before any boot
        for note in self._defaults.notes:
            session.events.note(note)
        self._session, self._lora = session, lora
        self._ready = open_session(session, [session.settled.model.max_model_len or 1])
        self._messages: list[Message] = []
        self._answers: list[Answer] = []
        self._first_token: float | None = None

    def say(self, text: str, on_text: Callable[[str], None]) -> Answer:
        """Answer one more message; the turn is forgotten when it cannot be answered.

        Raises:
            UsageError: the conversation has grown longer than the context.
        """
        asked = [*self._messages, {"role": "user", "content": text}]
        growing = Growing(Prompt(text), self._tokenizer)
        events = generate(self._ready.booted.runner, [self._request(asked)])
        # Every turn has its own number in the sampling, but it is alone in its batch.
        turn = (replace(event, request=0) for event in events)
        first = hear(self._session.ledger, turn, [growing], lambda index, part: on_text(part))
        self._first_token = first if self._first_token is None else self._first_token
        growing.tell(self._session.events, f"turn {len(self._answers)}")
        answer = growing.answer()
        self._messages = [*asked, {"role": "assistant", "content": answer.text or ""}]
        self._answers.append(answer)
        return answer

    def report(self) -> RunReport:
        """The account of all turns, taken once; time at the prompt is in the phase `other`."""
        self._ready.booted.account(self._session.counters)
        return make_report(
            self._session.ledger,
            self._session.counters,
            self._answers,
            artifact=self._ready.artifact,
            first_token_seconds=self._first_token,
            notes=self._session.notes,
            lacking=self._ready.booted.lacking,
        )

    def _request(self, messages: list[Message]) -> Request:
        text = render_chat(self._tokenizer, messages)
        check_text(self._tokenizer, text, self._ready.booted.runner.limits.context)
        return Request(
            index=len(self._answers),
            token_ids=self._tokenizer.encode(text, special_tokens=False),
            params=self._defaults.params,
            max_new_tokens=self._defaults.max_new_tokens,
            eos=self._defaults.eos,
            lora=self._lora,
            encoded=True,
        )
