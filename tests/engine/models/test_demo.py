"""The demo model: small, a plain Llama, better than a trigram model, and it writes words."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from vcc.cache.errors import VccError
from vcc.engine.models.demo.directory import CONFIG, GENERATION, TOKENIZER
from vcc.engine.models.demo.evaluate import HERE, WINDOW, Trigram, figures, load, model_nats
from vcc.engine.models.demo.text import chapters_of, novels

EVALUATION = json.loads((HERE / "evaluation.json").read_text())
EXCERPT = (HERE / "excerpt.txt").read_text()


@pytest.fixture(scope="module")
def loaded():
    return load(HERE)


@pytest.fixture(scope="module")
def trigram(loaded) -> Trigram:
    """Counted on the excerpt itself: enough to test the arithmetic."""
    return Trigram.fit([loaded[1].encode(EXCERPT).ids], loaded[1].get_vocab_size())


def test_the_directory_is_small() -> None:
    size = sum(path.stat().st_size for path in HERE.glob("*") if path.suffix != ".py")
    assert size <= 5_000_000


def test_the_files_are_those_that_the_script_writes() -> None:
    tables = {"config": CONFIG, "generation_config": GENERATION, "tokenizer_config": TOKENIZER}
    for name, table in tables.items():
        assert json.loads((HERE / f"{name}.json").read_text()) == table


def test_it_is_a_plain_llama_in_bfloat16() -> None:
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    model = AutoModelForCausalLM.from_pretrained(HERE)
    assert type(model) is LlamaForCausalLM
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_its_perplexity_on_the_excerpt_is_the_stored_one(loaded, trigram) -> None:
    model, tokenizer = loaded
    now, stored = figures([EXCERPT], model, tokenizer, trigram), EVALUATION["excerpt"]
    assert (now["tokens"], now["bytes"]) == (stored["tokens"], stored["bytes"])
    assert now["model"]["perplexity"] == pytest.approx(stored["model"]["perplexity"], rel=2e-3)
    assert now["model"]["bits_per_byte"] == pytest.approx(
        stored["model"]["bits_per_byte"], abs=2e-3
    )


@pytest.mark.parametrize("part", ["held_out", "excerpt"])
def test_it_is_better_than_the_trigram_model(part: str) -> None:
    found = EVALUATION[part]
    assert found["model"]["perplexity"] < 0.75 * found["trigram"]["perplexity"]
    assert found["model"]["bits_per_byte"] < found["trigram"]["bits_per_byte"]


@pytest.mark.parametrize("part", ["held_out", "excerpt"])
def test_the_readme_has_the_figures_of_the_evaluation(part: str) -> None:
    cells = {cell.strip() for cell in (HERE / "README.md").read_text().split("|")}
    found = EVALUATION[part]
    values = (found["tokens"], *found["model"].values(), *found["trigram"].values())
    assert {str(value) for value in values} <= cells


def test_windows_score_every_token_once(loaded) -> None:
    """Up to one window there is no overlap, so the plain loss is the answer."""
    model, tokenizer = loaded
    ids = tokenizer.encode(EXCERPT).ids[: WINDOW + 300]
    row = torch.tensor([[0, *ids[:WINDOW]]])
    with torch.inference_mode():
        plain = model(row, labels=row).loss.item() * WINDOW
    assert model_nats(model, ids[:WINDOW]) == pytest.approx(plain, rel=1e-4)
    assert model_nats(model, ids) > plain


@pytest.mark.parametrize("prompt", ["It is a truth", "The morning was", "He had been", '"My dear'])
def test_a_greedy_continuation_is_words(loaded, prompt: str) -> None:
    model, tokenizer = loaded
    row = torch.tensor([tokenizer.encode(prompt).ids])
    made = model.generate(
        row, attention_mask=torch.ones_like(row), max_new_tokens=48, do_sample=False
    )
    known = set(re.findall(r"[a-z]+", EXCERPT.lower()))
    words = re.findall(r"[a-z]+", tokenizer.decode(made[0].tolist()).lower())[:-1]
    assert len(words) > 30
    assert sum(word in known for word in words) >= 0.9 * len(words)


def test_the_chat_template_prints_a_conversation() -> None:
    from transformers import AutoTokenizer

    messages = [{"role": "user", "content": "How do you do?"}]
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    made = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert made == '"How do you do?"\n"'


def test_trigram_probabilities_sum_to_one(trigram) -> None:
    vocab = trigram.vocab
    tokens = np.arange(vocab)
    for a, b in ((0, 0), (300, 301), (17, 2047), (2047, 2047)):
        total = trigram.probability(np.full(vocab, a), np.full(vocab, b), tokens).sum()
        assert total == pytest.approx(1.0, abs=1e-9)


def test_a_trigram_model_prefers_what_it_saw() -> None:
    trigram = Trigram.fit([[1, 2, 3, 1, 2, 3, 1, 2, 4], [5, 6, 7, 8]], vocab=16)
    assert trigram.nats([1, 2, 3]) < trigram.nats([3, 2, 1]) < trigram.nats([9, 9, 9])


def serialised(strings: list[str]) -> bytes:
    """One novel as R writes it; see the grammar in text.py."""
    vector = struct.pack(">II", 16, len(strings))
    for text in strings:
        vector += struct.pack(">II", 0x40009, len(text.encode())) + text.encode()
    data = b"X\n" + struct.pack(">IIII", 3, 0, 0, 5) + b"UTF-8" + vector
    return struct.pack(">I", len(data)) + zlib.compress(data)


def test_novels_are_read_from_the_r_file(tmp_path: Path) -> None:
    path = tmp_path / "Rdata.rdb"
    path.write_bytes(serialised(["EMMA", "", "Café"]) + serialised(["two"]))
    assert list(novels(path)) == [("EMMA", "", "Café"), ("two",)]


@pytest.mark.parametrize("data", [b"\0\0\0\1nonsense", serialised(["x"])[:-9], b"\0\0\0\3"])
def test_another_file_is_refused_with_a_hint(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "Rdata.rdb"
    path.write_bytes(data)
    with pytest.raises(VccError) as caught:
        list(novels(path))
    assert "r-cran-janeaustenr" in caught.value.hint


def test_chapters_lose_headings_and_line_wrapping() -> None:
    long = ["\u201cA word,\u201d she", "said\u2014_twice_."] * 60
    lines = ("EMMA", "by", "CHAPTER I", "", *long, "", "* * *", "", "Next.", "VOLUME II", "x")
    (only,) = chapters_of(lines)
    assert only.startswith('"A word," she said--twice. "A word,')
    assert only.endswith("said--twice.\nNext.")
