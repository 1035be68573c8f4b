"""Held-out perplexity of the demo model, beside a Kneser-Ney trigram model on the same tokens.

    python -m vcc.engine.models.demo.evaluate --text Rdata.rdb

writes `evaluation.json` into the model's directory.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from vcc.engine.models.demo.text import INSTALLED, read_split

HERE = Path(__file__).parent
END = 0  # the token between chapters
WINDOW, STRIDE = 512, 256  # every token past a chapter's first 256 is scored with >= 256 before it

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Order:
    """Counts of one n-gram order, discounted: `keys` = context * vocab + token, ascending."""

    vocab: int
    keys: Ints
    kept: Floats  # count less discount, over the context's total
    contexts: Ints
    backoff: Floats  # probability mass that each context leaves to the lower order

    def probability(self, context: Ints, token: Ints, lower: Floats) -> Floats:
        """P(token | context), interpolated with `lower`, the lower order's answer; all [n]."""
        kept = _look_up(self.keys, self.kept, context * self.vocab + token, absent=0.0)
        return kept + _look_up(self.contexts, self.backoff, context, absent=1.0) * lower


def order_of(vocab: int, keys: Ints, counts: Ints) -> Order:
    """Discount `counts` of the ascending `keys` by the modified Kneser-Ney estimates.

    Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (1998),
    eq. 26: three discounts, for counts of 1, 2 and more.
    """
    n = [max(1, int((counts == k).sum())) for k in range(1, 5)]
    y = n[0] / (n[0] + 2 * n[1])
    estimates = [k - (k + 1) * y * n[k] / n[k - 1] for k in (1, 2, 3)]
    discounts = np.clip([0.0, *estimates], 0.0, [0.0, 1.0, 2.0, 3.0])[np.minimum(counts, 3)]
    contexts, where = np.unique(keys // vocab, return_inverse=True)
    totals = np.bincount(where, counts)
    return Order(
        vocab=vocab,
        keys=keys,
        kept=(counts - discounts) / totals[where],
        contexts=contexts,
        backoff=np.bincount(where, discounts) / totals,
    )


def _look_up(keys: Ints, values: Floats, wanted: Ints, absent: float) -> Floats:
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], absent)


@dataclass(frozen=True, slots=True)
class Trigram:
    """An interpolated modified Kneser-Ney model; the lower orders count distinct contexts."""

    vocab: int
    orders: tuple[Order, Order, Order]  # unigram, bigram, trigram

    @classmethod
    def fit(cls, documents: Sequence[Sequence[int]], vocab: int) -> Trigram:
        """Count the trigrams of `documents` (token ids), each led in by two `END`."""
        a, b, c = (np.concatenate(part) for part in zip(*map(_trigrams, documents), strict=True))
        three, counts = np.unique((a * vocab + b) * vocab + c, return_counts=True)
        two, followers = np.unique(three % vocab**2, return_counts=True)
        one, spread = np.unique(two % vocab, return_counts=True)
        levels = ((one, spread), (two, followers), (three, counts))
        first, second, third = (order_of(vocab, keys, numbers) for keys, numbers in levels)
        return cls(vocab, (first, second, third))

    def probability(self, a: Ints, b: Ints, c: Ints) -> Floats:
        """P(c | a, b), all [n]."""
        found: Floats = np.full(len(c), 1.0 / self.vocab)
        for order, context in zip(self.orders, (b * 0, b, a * self.vocab + b), strict=True):
            found = order.probability(context, c, found)
        return found

    def nats(self, document: Sequence[int]) -> float:
        """Negative log likelihood of `document`, in nats."""
        return float(-np.log(self.probability(*_trigrams(document))).sum())


def _trigrams(document: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    ids = np.array([END, END, *document], dtype=np.int64)
    return ids[:-2], ids[1:-1], ids[2:]


@torch.inference_mode()
def model_nats(model: Any, document: Sequence[int]) -> float:
    """Negative log likelihood of `document` (token ids) under a causal model, in nats.

    The document is led in by one `END`; windows of `WINDOW` tokens overlap by `STRIDE`.
    """
    ids = torch.tensor([END, *document], device=model.device)
    total, done = 0.0, 0  # `done` targets are scored; target i is ids[i + 1]
    for start in range(0, len(document), STRIDE):
        window = ids[start : start + WINDOW + 1]
        logits = model(window[None, :-1]).logits[0].float()
        fresh = slice(done - start, None)
        total += float(
            torch.nn.functional.cross_entropy(logits[fresh], window[1:][fresh], reduction="sum")
        )
        done = start + len(window) - 1
        if done == len(document):
            break
    return total


def load(directory: Path) -> tuple[Any, Tokenizer]:
    """The stored weights, computed in float32 on CPU, and the tokenizer."""
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model.eval(), Tokenizer.from_file(str(directory / "tokenizer.json"))


def figures(texts: Sequence[str], model: Any, tokenizer: Tokenizer, trigram: Trigram) -> Any:
    """Tokens, bytes, and per model the perplexity of a token and the bits of a byte."""
    documents = [tokenizer.encode(text).ids for text in texts]
    tokens, size = sum(map(len, documents)), sum(len(text.encode()) for text in texts)
    nats = {
        "model": sum(model_nats(model, document) for document in documents),
        "trigram": sum(map(trigram.nats, documents)),
    }
    scores = {
        name: {
            "perplexity": round(math.exp(value / tokens), 4),
            "bits_per_byte": round(value / math.log(2) / size, 4),
        }
        for name, value in nats.items()
    }
    return {"documents": len(texts), "tokens": tokens, "bytes": size, **scores}


def evaluate(text: Path, directory: Path) -> Any:
    """Score the held-out chapters and the excerpt; the trigram model sees the training chapters."""
    split = read_split(text)
    model, tokenizer = load(directory)
    documents = [tokenizer.encode(chapter).ids for chapter in split.train]
    trigram = Trigram.fit(documents, tokenizer.get_vocab_size())
    excerpt = (directory / "excerpt.txt").read_text(encoding="utf-8")
    return {
        "train": {"documents": len(documents), "tokens": sum(map(len, documents))},
        "held_out": figures(split.held_out, model, tokenizer, trigram),
        "excerpt": figures([excerpt], model, tokenizer, trigram),
    }


def main() -> None:
    """Write `evaluation.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=INSTALLED)
    parser.add_argument("--directory", type=Path, default=HERE)
    given = parser.parse_args()
    report = json.dumps(evaluate(given.text, given.directory), indent=2)
    (given.directory / "evaluation.json").write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
