"""Serving: prompts that come while others are answered, one step of all of them at a time.

serving = vcc.load("demo").serving()
number = serving.submit("It is a truth")
while serving.busy:
    for part in serving.step():
        print(part.text, end="")
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cache.errors import ModelError, UsageError, VccError
from vcc.engine.answer import Growing, check_answers
from vcc.engine.prompt import Prompt
from vcc.engine.runtime.batch import BatchBuilder, StepRunner, as_float32
from vcc.engine.runtime.chat import encode_chat
from vcc.engine.runtime.defaults import NOTHING_SAID, Overrides, resolve_generation
from vcc.engine.runtime.device_steps import DeviceSampler, TokenEvent, device_steps
from vcc.engine.runtime.generate import advance
from vcc.engine.runtime.no_adapters import AdapterUnreadable
from vcc.engine.runtime.placed import check_loras, chunks_of, scheduler_of
from vcc.engine.runtime.report import Answer
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.tokenizer import Tokenizer, check_text, open_tokenizer

if TYPE_CHECKING:
    from vcc.engine.models.source import Source


@dataclass(frozen=True, slots=True)
class Part:
    """What a step added to one answer.

    Attributes:
        number: of the prompt, as `submit` gave it.
        text: the text that became certain, often empty; token ids for a model without tokenizer.
        token: its id; -1 with an error.
        answer: the whole, when it ends here.
        error: why it ends here without one; the other prompts go on.
    """

    number: int
    text: str
    token: int
    answer: Answer | None
    error: VccError | None = None


class Serving:
    """One model and the prompts that it is answering; for one thread.

    Args:
        runner: what computes steps.
        source: the model's tokenizer and generation defaults.

    Raises:
        UsageError: the model answers no prompts.
        ModelError: its tokenizer cannot be read.
    """

    def __init__(self, runner: StepRunner, source: Source) -> None:
        check_answers(source)
        self._runner, self._source = runner, source
        self._tokenizer = None if source.tokenizer is None else _opened(source.tokenizer)
        self._scheduler = scheduler_of(runner)
        self._builder = BatchBuilder(runner.limits)
        self._growing: dict[int, Growing] = {}
        self._device: Generator[TokenEvent, None, None] | None = None
        self._next = 0

    @property
    def busy(self) -> bool:
        """Whether an answer is under way."""
        return self._scheduler.busy

    def submit(
        self,
        prompt: str | Sequence[int],
        overrides: Overrides = NOTHING_SAID,
        *,
        chat: bool = False,
        number: int | None = None,
        lora: str = "",
    ) -> int:
        """Queue a prompt; it begins with a later step.

        Args:
            prompt: text or token ids.
            overrides: how to generate; None in it keeps the model's default.
            chat: put the text into the model's chat template.
            number: its number, part of the sampling; None takes the next that is free.
            lora: name of a loaded adapter; empty without one.

        Returns:
            The number, which its parts have.

        Raises:
            UsageError: it is neither a text nor token ids, empty, too long, not of the vocabulary,
                the number is in use, or no such adapter is loaded.
            ModelError: the model has no tokenizer or no chat template.
        """
        index = self._next if number is None else number
        if index in self._growing:
            raise UsageError(f"prompt {index} is being answered", "its number is in use")
        text = prompt if isinstance(prompt, str) else None
        ids = self._ids(index, prompt, chat=chat)
        defaults = resolve_generation(self._source.generation, overrides)
        params, most, eos = defaults.params, defaults.max_new_tokens, defaults.eos
        request = Request(index, ids, params, most, eos, lora, text is not None)
        check_loras(self._runner, [request])
        self._scheduler.add(request)
        self._growing[index] = Growing(Prompt(text, None if text else ids), self._tokenizer)
        self._next = max(self._next, index) + 1
        return index

    def step(self) -> tuple[Part, ...]:
        """Compute one step of everything under way; nothing when nothing is.

        Raises:
            DeviceError: the device is lost.
        """
        if not self.busy:
            return ()
        runner = self._runner
        sampler = runner if isinstance(runner, DeviceSampler) and runner.samples else None
        try:
            events = tuple(self._on_host()) if sampler is None else self._on_device(sampler)
        except AdapterUnreadable as error:  # before anything of the step has run
            return self._failed(error)
        if not self.busy:
            self._end_run()
        return tuple(self._part(event) for event in events)

    def cancel(self, number: int) -> bool:
        """Give a prompt up, between two steps: its blocks are free, and no part of it comes.

        Args:
            number: as `submit` gave it.

        Returns:
            Whether it was under way.
        """
        if self._growing.pop(number, None) is None:
            return False
        self._end_run()
        return self._scheduler.cancel(number)

    def _end_run(self) -> None:
        """Let nobody wait for the device's run; what it computed beyond is computed again."""
        if self._device is not None:
            self._device.close()
        self._device = None

    def _on_host(self) -> Iterator[TokenEvent]:
        step = self._scheduler.schedule()
        logits = as_float32(self._runner.step(self._builder.build(chunks_of(self._runner, step))))
        for one, row in zip(step, logits, strict=False):
            event = advance(self._scheduler, one, row)
            if event is not None:
                yield event

    def _on_device(self, runner: DeviceSampler) -> tuple[TokenEvent, ...]:
        """The next token; the device decodes in runs, and what came meanwhile joins after one."""
        found = () if self._device is None else tuple(islice(self._device, 1))
        if not found:
            self._device = device_steps(runner, self._scheduler)
            found = tuple(islice(self._device, 1))
        return found

    def _part(self, event: TokenEvent) -> Part:
        growing = self._growing[event.request]
        text = growing.take(event)
        if event.finish is None:
            return Part(event.request, text, event.token, None)
        del self._growing[event.request]
        return Part(event.request, text, event.token, growing.answer())

    def _failed(self, error: AdapterUnreadable) -> tuple[Part, ...]:
        """End the prompts of an adapter."""
        numbers = [request.index for request in self._scheduler.drop(error.name)]
        for number in numbers:
            del self._growing[number]
        return tuple(Part(number, "", -1, None, error) for number in numbers)

    def _ids(self, index: int, prompt: str | Sequence[int], *, chat: bool) -> tuple[int, ...]:
        if not isinstance(prompt, str):
            if isinstance(prompt, (bytes, bytearray, Mapping)) or not isinstance(prompt, Iterable):
                raise UsageError(
                    f"prompt {index} is {prompt!r:.60}",
                    f"{type(prompt).__name__} is neither a text nor a list of token ids",
                    "give a text, or ids such as [1, 2, 3]",
                )
            return tuple(prompt)
        tokenizer = self._text_tokenizer()
        if not prompt:
            return ()
        check_text(tokenizer, prompt, self._runner.limits.context)
        return encode_chat(tokenizer, prompt) if chat else tokenizer.encode(prompt)

    def _text_tokenizer(self) -> Tokenizer:
        return open_tokenizer(None) if self._tokenizer is None else self._tokenizer


def _opened(path: Path) -> Tokenizer:
    try:
        return open_tokenizer(path)
    except ModelError as error:
        hint = f"mend {path.name}, or take it away where all prompts are token ids"
        raise ModelError(error.what, error.why, hint) from error
