"""Prompts that come while others are answered get the answers that they get alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.fake_runner import BrokenRunner, FakeRunner, limits

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.models.source import open_source
from vcc.engine.runtime.batch import StepBatch
from vcc.engine.runtime.defaults import Overrides
from vcc.engine.runtime.device_steps import DecodeRow, SampleRow, told
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.no_adapters import AdapterUnreadable
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.sample import SamplingParams
from vcc.engine.serving import Serving


class Device(FakeRunner):
    """Chooses tokens itself and decodes in runs, as a GPU does."""

    samples = True

    @property
    def decoding(self) -> Device:
        return self

    def sample(self, batch: StepBatch, rows: Sequence[SampleRow]) -> np.ndarray:
        return np.array([word(row) for row in self.step(batch)], dtype=np.int32)

    def run(self, rows: Sequence[DecodeRow], steps: int, finish: int) -> Iterator[np.ndarray]:
        tokens = [row.sample.token for row in rows]
        for step in range(steps):
            words = [
                self._decoded(row, token, step) for row, token in zip(rows, tokens, strict=True)
            ]
            yield np.asarray(words, dtype=np.int32)
            tokens = [told(one)[0] for one in words]

    def _decoded(self, row: DecodeRow, token: int, step: int) -> int:
        at, size = np.arange(row.position + step + 1), self.limits.block_size
        slots = row.blocks[at // size] * size + at % size
        self.kv[slots[-1]] = token
        return word(self.logits(self.kv[slots].tolist()))


class BrokenDevice(Device, BrokenRunner):
    """The same whose logits are broken behind a token 7."""


def word(logits: np.ndarray) -> int:
    """What a GPU writes: the token, or -1 - token where the logits have no largest one."""
    token = int(logits.argmax())
    return token if np.isfinite(logits[token]) else -1 - token


SHORT = Overrides(max_new_tokens=5, ignore_eos=True)


def serving(kind: type[FakeRunner] = FakeRunner) -> Serving:
    return Serving(kind(limits(vocab=2048)), open_source("demo"))


def drained(one: Serving, found: dict[int, list[int]] | None = None) -> dict[int, list[int]]:
    """All tokens by number, after those that were found already."""
    found = {} if found is None else found
    while one.busy:
        for part in one.step():
            found.setdefault(part.number, []).append(part.token)
            assert part.answer is None or list(part.answer.token_ids) == found[part.number]
    return found


def alone(index: int, prompt: list[int], params: SamplingParams) -> list[int]:
    request = Request(index, tuple(prompt), params, 5)
    events = generate(FakeRunner(limits(vocab=2048)), [request])
    return [event.token for event in events]


@pytest.mark.parametrize(
    ("kind", "temperature"), [(FakeRunner, 0.0), (FakeRunner, 1.0), (Device, 0.0)]
)
def test_prompts_may_come_between_any_two_steps(kind: type[FakeRunner], temperature: float) -> None:
    prompts = [[7, 8, 9], [100] * 20, [5], [6, 6], [1, 2, 3, 4]]
    said = Overrides(max_new_tokens=5, ignore_eos=True, temperature=temperature, seed=3)
    one, found = serving(kind), {}
    for number, prompt in enumerate(prompts):
        assert one.submit(prompt, said) == number
        for part in one.step():
            found.setdefault(part.number, []).append(part.token)
    drained(one, found)
    params = SamplingParams(temperature, seed=3)
    assert found == {n: alone(n, prompt, params) for n, prompt in enumerate(prompts)}


def test_the_parts_of_a_text_are_its_whole() -> None:
    one = serving()
    one.submit("It is a truth", SHORT)
    parts = [part for _ in range(5) for part in one.step()]
    assert "".join(part.text for part in parts) == parts[-1].answer.text
    assert parts[-1].answer.prompt == "It is a truth"
    assert not one.busy
    assert one.step() == ()


@pytest.mark.parametrize("prompt", ["", [], [5000], [1] * 64])
def test_a_prompt_that_cannot_be_answered_leaves_the_others_alone(prompt: object) -> None:
    one = serving()
    first = one.submit([1, 2], SHORT)
    with pytest.raises(UsageError):
        one.submit(prompt, SHORT)
    assert len(drained(one)[first]) == 5


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([1.5], "prompt 0 is a list of something else than token ids: it holds 1.5"),
        ([1, True], "it holds True, and ids are whole numbers"),
        (["a"], "it holds 'a'"),
        ([None], "it holds None"),
        ([[1]], r"it holds \[1\]"),
        (np.array([1.0]), "it holds"),
        (5, "prompt 0 is 5: int is neither a text nor a list of token ids"),
        (None, "NoneType is neither"),
        (b"ab", "bytes is neither"),
        ({1: 2}, "dict is neither"),
        ([-1], "token id -1"),
    ],
    ids=str,
)
def test_what_is_neither_text_nor_token_ids_is_refused(prompt: object, said: str) -> None:
    one = serving()
    with pytest.raises(UsageError, match=said) as error:
        one.submit(prompt, SHORT)
    assert error.value.hint
    assert not one.busy


def test_who_gives_token_ids_is_not_told_of_a_tokenizer() -> None:
    with pytest.raises(UsageError, match="token id 5000") as error:
        serving().submit([5000])
    assert "tokenizer" not in error.value.hint


def test_a_damaged_tokenizer_is_refused_with_what_token_ids_need(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    source = replace(open_source("demo"), tokenizer=tmp_path / "tokenizer.json")
    with pytest.raises(ModelError, match="the tokenizer cannot be read") as error:
        Serving(FakeRunner(limits(vocab=2048)), source)
    assert "take it away where all prompts are token ids" in error.value.hint


def test_whole_numbers_of_numpy_are_token_ids() -> None:
    one = serving()
    one.submit(np.array([5, 6, 7]), SHORT)
    one.submit([5, 6, 7], SHORT)
    found = drained(one)
    assert found[0] == found[1]


def test_a_number_is_of_one_prompt_at_a_time() -> None:
    one = serving()
    one.submit([1], SHORT, number=4)
    with pytest.raises(UsageError, match="number is in use"):
        one.submit([2], SHORT, number=4)
    assert one.submit([2], SHORT) == 5
    drained(one)
    assert one.submit([1], SHORT, number=4) == 4


class Broken:
    """Adapters of which those that begin with `bad` can be loaded, but not read again."""

    def check(self, name: str) -> None:
        pass

    def watch(self, user: object) -> None:
        pass

    def slots_for(self, names: Sequence[str]) -> dict[str, int]:
        for name in names:
            if name.startswith("bad"):
                raise AdapterUnreadable(name, ModelError("the file has gone"))
        return {"": -1} | {name: 0 for name in names if name}


@pytest.mark.parametrize("kind", [FakeRunner, Device])
def test_an_adapter_that_cannot_be_read_ends_its_own_prompts_alone(kind: type[FakeRunner]) -> None:
    runner = kind(limits(vocab=2048, max_loras=1))
    runner.adapters = Broken()
    one, found, failed = Serving(runner, open_source("demo")), {}, {}
    loras = ("", "bad", "good", "bad", "")
    for lora in loras[:2]:
        one.submit([7, 8], SHORT, lora=lora)
    for lora in loras[2:]:
        for part in one.step():
            (failed if part.error else found).setdefault(part.number, []).append(part)
        one.submit([7, 8], SHORT, lora=lora)
    while one.busy:
        for part in one.step():
            (failed if part.error else found).setdefault(part.number, []).append(part)
    assert {number: len(parts) for number, parts in failed.items()} == {1: 1, 3: 1}
    assert all("gone" in parts[0].error.what and not parts[0].answer for parts in failed.values())
    for number in (0, 2, 4):
        tokens = list(found[number][-1].answer.token_ids)
        assert tokens == alone(number, [7, 8], SamplingParams())
    assert one._scheduler.free_blocks == 64, "what failed gave its blocks back"


@pytest.mark.parametrize("kind", [BrokenRunner, BrokenDevice])
def test_an_answer_says_how_many_of_its_tokens_come_from_nan(kind: type[FakeRunner]) -> None:
    one = serving(kind)
    broken, sound = (one.submit(ids, SHORT) for ids in ([1, 7], [1, 2]))
    found = {}
    while one.busy:
        found |= {part.number: part.answer for part in one.step() if part.answer is not None}
    assert found[broken].not_finite == 5
    assert found[sound].not_finite == 5 - _sound_tokens(found[sound].token_ids)
    on_host = generate(BrokenRunner(limits(vocab=2048)), [Request(0, (1, 7), SamplingParams(), 5)])
    assert list(found[broken].token_ids) == [event.token for event in on_host]


def _sound_tokens(tokens: tuple[int, ...]) -> int:
    """Tokens up to the first 7, which spoils what comes behind it."""
    return tokens.index(7) + 1 if 7 in tokens else len(tokens)
