"""answer: prompts in, texts and the report of the run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.adapters import check_named
from vcc.engine.events import Events
from vcc.engine.models.source import Source, check_weights
from vcc.engine.monitor import Ledger
from vcc.engine.prompt import Prompt
from vcc.engine.request import Settled
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.chat import encode_chat
from vcc.engine.runtime.defaults import (
    NOTHING_SAID,
    GenerationDefaults,
    Overrides,
    resolve_generation,
)
from vcc.engine.runtime.generate import TokenEvent, generate
from vcc.engine.runtime.report import Answer, RunReport, make_report
from vcc.engine.runtime.requests import Finish, Request, check_request
from vcc.engine.runtime.tokenizer import Detokenizer, Tokenizer, check_text, open_tokenizer
from vcc.engine.session import Session, open_session

OnText = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to answer and how.

    Attributes:
        prompts: in order.
        overrides: how to generate.
        chat: wrap texts in the model's chat template.
        lora: adapter of the prompts that do not say; empty for none.
    """

    prompts: tuple[Prompt, ...]
    overrides: Overrides = NOTHING_SAID
    chat: bool = False
    lora: str = ""


class Growing:
    """One answer as it grows.

    Args:
        prompt: what it answers.
        tokenizer: None for a model without one, whose tokens are shown as numbers.
    """

    def __init__(self, prompt: Prompt, tokenizer: Tokenizer | None) -> None:
        self.prompt, self.tokens, self.finish = prompt, list[int](), ""
        self.not_finite = 0
        self._tokenizer = tokenizer
        self._stream = Detokenizer(tokenizer) if tokenizer else None

    def take(self, event: TokenEvent) -> str:
        """Add a token; the text that became certain."""
        self.tokens.append(event.token)
        self.not_finite += not event.finite
        self.finish = event.finish.value if event.finish else ""
        if self._stream is None:
            return f"{event.token} "
        # The token that stops an answer is in its ids, but it is no text.
        text = "" if event.finish is Finish.STOP else self._stream.push(event.token)
        return text + (self._stream.finish() if event.finish else "")

    def tell(self, events: Events, name: str) -> None:
        """Note tokens whose logits had no largest one; `name` is the prompt's."""
        if self.not_finite:
            events.note(
                f"{name}: logits of {self.not_finite} of {len(self.tokens)} tokens have NaN or "
                "infinity, so the answer means nothing: weights hold such values, or values "
                "overflow in this dtype"
            )

    def answer(self) -> Answer:
        """The finished answer."""
        spoken = self.tokens[:-1] if self.finish == Finish.STOP.value else self.tokens
        text = None if self._tokenizer is None else self._tokenizer.decode(spoken)
        return Answer(self.prompt.text, text, tuple(self.tokens), self.finish, self.not_finite)


def answer(session: Session, asked: Asked, on_text: OnText = lambda index, text: None) -> RunReport:
    """Answer prompts with continuous batching.

    Args:
        session: the model, the store, the accounts.
        asked: prompts and how to generate.
        on_text: told the index of a prompt and its next bit of text, as soon as it is certain.

    Returns:
        Answers in the order of the prompts, and the account of the run.

    Raises:
        UsageError: a prompt that cannot be answered.
        MissingArtifact, IntegrityError, CompileError: see `open_session`.
    """
    source = session.settled.request.source
    check_answers(source)
    with session.ledger.phase("resolve"):
        defaults = resolve_generation(source.generation, asked.overrides)
        tokenizer = _tokenizer(source, asked, session.events)
        limits = _planned(session.settled)  # before anything is booted or built for it
        requests = _requests(asked, tokenizer, defaults, limits.context)
        for request in requests:
            check_request(request, limits)
        check_named(requests, [name for name, _ in session.adapters])
    for note in defaults.notes:
        session.events.note(note)
    lengths = [len(one.token_ids) + one.max_new_tokens for one in requests]
    ready = open_session(session, lengths)
    growing = [Growing(prompt, tokenizer) for prompt in asked.prompts]
    events = generate(ready.booted.runner, requests)
    first_token = hear(session.ledger, events, growing, on_text)
    ready.booted.account(session.counters)
    for index, one in enumerate(growing):
        one.tell(session.events, f"prompt {index}")
    return make_report(
        session.ledger,
        session.counters,
        [one.answer() for one in growing],
        artifact=ready.artifact,
        first_token_seconds=first_token,
        notes=session.notes,
        lacking=ready.booted.lacking,
    )


def check_answers(source: Source) -> None:
    """Raise UsageError for a model that cannot generate tokens, before anything is built for it."""
    if source.kind != "decoder":
        raise UsageError(
            f"{source.name} answers no prompts",
            "it is a plain module, without tokens and a KV cache",
            "leave the prompts out to run its forward once",
        )
    check_weights(source)


def hear(
    ledger: Ledger, events: Iterator[TokenEvent], growing: Sequence[Growing], on_text: OnText
) -> float | None:
    """Take all tokens; seconds from the start of the account to the first, None without any."""
    with ledger.phase("first_token"):
        first = tuple(islice(events, 1))
        seconds = ledger.wall() if first else None
    with ledger.phase("generate"):
        for event in chain(first, events):
            text = growing[event.request].take(event)
            if text:
                on_text(event.request, text)
    return seconds


def _tokenizer(source: Source, asked: Asked, events: Events) -> Tokenizer | None:
    """The model's; token ids are answered without one, also where it cannot be read."""
    needed = any(prompt.text is not None for prompt in asked.prompts)
    if source.tokenizer is None and not needed:
        return None
    try:
        return open_tokenizer(source.tokenizer)
    except ModelError as error:
        if needed:
            raise
        events.note(f"answers are token ids, without text: {error.what}: {error.why}")
        return None


def _requests(
    asked: Asked, tokenizer: Tokenizer | None, defaults: GenerationDefaults, context: int
) -> list[Request]:
    return [
        Request(
            index=index,
            token_ids=_ids(prompt, tokenizer, context, chat=asked.chat),
            params=defaults.params,
            max_new_tokens=defaults.max_new_tokens,
            eos=defaults.eos,
            lora=asked.lora if prompt.lora is None else prompt.lora,
            encoded=prompt.token_ids is None,
        )
        for index, prompt in enumerate(asked.prompts)
    ]


def _ids(
    prompt: Prompt, tokenizer: Tokenizer | None, context: int, *, chat: bool
) -> tuple[int, ...]:
    """Token ids; none for an empty text, to which a tokenizer would still add its start token."""
    if prompt.token_ids is not None:
        return prompt.token_ids
    if tokenizer is None or not prompt.text:
        return ()
    check_text(tokenizer, prompt.text, context)
    return encode_chat(tokenizer, prompt.text) if chat else tokenizer.encode(prompt.text)


def _planned(settled: Settled) -> StepLimits:
    """Limits that no artifact of this request exceeds."""
    longest = settled.model.max_model_len or 1
    vocab = settled.request.source.config.get("vocab_size")
    return StepLimits(
        max_tokens=settled.model.max_num_batched_tokens or 1,
        max_seqs=settled.model.max_num_seqs or 1,
        block_size=1,
        num_blocks=longest,
        max_blocks_per_seq=longest,
        max_model_len=longest,
        vocab=vocab if isinstance(vocab, int) else 1 << 31,
        max_loras=settled.model.max_loras or 0,
    )
