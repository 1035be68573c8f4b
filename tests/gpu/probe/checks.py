"""Numbers of a player against references: teacher-forced logits, greedy tokens, schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from batches import Sequences
from player import Player, Prepared

Array = npt.NDArray[Any]

LENGTHS, NEW, BLOCKS = (1, 17, 200), 32, 256
"""Prompts of the reference, new tokens after each, and KV blocks of the player."""


class Runner:
    """Steps of any size: the graph of a declared size, plain launches otherwise."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.graphs: dict[tuple[int, int], Any] = {}
        self._steps: dict[tuple[int, int], Prepared] = {}

    def prepared(self, tokens: int, seqs: int) -> Prepared:
        """The launches of a size, made once."""
        if (tokens, seqs) not in self._steps:
            self._steps[tokens, seqs] = self.player.prepare(tokens, seqs)
        return self._steps[tokens, seqs]

    def step(self, inputs: Mapping[str, Array]) -> Array:
        """Logits [B, vocab] in fp32."""
        size = (len(inputs["input_ids"]), len(inputs["seq_lens"]))
        self.player.write(inputs)
        if size in self.graphs:
            self.player.driver.replay(self.graphs[size])
        else:
            self.player.launch(self.prepared(*size))
        return as_fp32(self.player.logits(size[1]))


def as_fp32(bits: Array) -> Array:
    """bf16 in 16-bit integers to fp32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def teacher_forced(runner: Runner, sequence: Sequence[int], length: int, who: int) -> Array:
    """Logits of all positions: a prefill of the prompt, then decode along the given tokens.

    Padding sequences carry the rows whose logits are wanted beyond one a sequence.
    """
    seqs, parts = sequences(), []
    prompt, most = list(sequence[:length]), runner.player.largest["B"]
    for first in range(0, length, most):
        rows = list(range(first, min(first + most, length)))
        seqs.rewind(who, 0)
        parts.append(runner.step(seqs.batch({who: prompt}, length, most, rows))[: len(rows)])
    for token in sequence[length:]:
        parts.append(runner.step(seqs.batch({who: [token]}, 1, 1)))
    return np.concatenate(parts)


def sequences() -> Sequences:
    """Fresh sequences over the player's cache."""
    return Sequences(BLOCKS, 16, 32)


def numbers(runner: Runner, reference: Mapping[str, Array]) -> tuple[dict[str, Any], str]:
    """Errors against fp32 beside those of transformers in bf16 and of vcc on the CPU."""
    report, digest = {}, hashlib.sha256()
    for length in LENGTHS:
        sequence, exact = reference[f"sequence_{length}"].tolist(), reference[f"fp32_{length}"]
        got = teacher_forced(runner, sequence, length, 0)
        digest.update(got.tobytes())
        peer, cpu = (as_fp32(reference[f"{kind}_{length}"]) for kind in ("bf16", "cpu"))
        report[str(length)] = {
            "positions": len(exact),
            "largest_logit": _figure(abs(exact).max()),
            "player": _errors(got, exact),
            "transformers_bf16_cpu": _errors(peer, exact),
            "vcc_cpu_bf16": _errors(cpu, exact),
            "player_against_vcc_cpu": _errors(got, cpu),
            "rule_holds": _rule(got, exact, peer),
        }
    return report, digest.hexdigest()


def _errors(got: Array, exact: Array) -> dict[str, Any]:
    error = got - exact
    other = int((got.argmax(-1) != exact.argmax(-1)).sum())
    rms = np.sqrt(np.mean(error.astype(np.float64) ** 2))
    return {"max": _figure(abs(error).max()), "rms": _figure(rms), "other_argmax": other}


def _figure(value: Any) -> float:
    return float(f"{float(value):.5g}")


def _rule(got: Array, exact: Array, peer: Array) -> bool:
    """The numbers rule for low precision: 1.25 times the peer's error, argmax where it is clear."""
    ours, theirs = got - exact, peer - exact
    rms = [np.sqrt(np.mean(e.astype(np.float64) ** 2)) for e in (ours, theirs)]
    best = np.sort(exact, -1)
    clear = best[:, -1] - best[:, -2] > 4 * rms[1]
    same = bool((got.argmax(-1) == exact.argmax(-1))[clear].all())
    close = abs(ours).max() <= 1.25 * abs(theirs).max() and rms[0] <= 1.25 * rms[1]
    return bool(np.isfinite(got).all()) and same and bool(close)


def greedy(runner: Runner, reference: Mapping[str, Array]) -> dict[str, Any]:
    """Three prompts in one prefill, then decode together on padded graphs; tokens compared."""
    prompts = {n: reference[f"sequence_{n}"][:n].tolist() for n in LENGTHS}
    seqs, got = sequences(), {n: list(p) for n, p in prompts.items()}
    rows = sum(LENGTHS)
    logits = runner.step(seqs.batch(prompts, rows, len(prompts)))
    for step in range(NEW):
        for index, n in enumerate(LENGTHS):
            got[n].append(int(logits[index].argmax()))
        if step + 1 < NEW:
            logits = runner.step(seqs.batch({n: [got[n][-1]] for n in LENGTHS}, 4, 4))
    return {
        str(n): {
            "equal_to_vcc_cpu": got[n] == reference[f"cpu_greedy_{n}"].tolist(),
            "equal_to_transformers_fp32": got[n] == reference[f"sequence_{n}"].tolist(),
            "new_tokens": got[n][n:],
        }
        for n in LENGTHS
    }


def chunks(runner: Runner, reference: Mapping[str, Array]) -> dict[str, Any]:
    """A prompt in one step, in three, and beside another sequence: largest difference."""
    prompt, other = (reference[f"sequence_{n}"][:n].tolist() for n in (200, 17))
    seqs = sequences()
    whole = runner.step(seqs.batch({0: prompt}, 200, 1))[0]
    for part in (prompt[:64], prompt[64:163], prompt[163:]):
        chunked = runner.step(seqs.batch({1: part}, len(part), 1))[0]
    runner.step(seqs.batch({2: other}, 17, 1))
    mixed = runner.step(seqs.batch({2: [5], 3: prompt}, 210, 4))[1]
    return {
        "chunked": _figure(abs(whole - chunked).max()),
        "beside_a_decode_and_padding": _figure(abs(whole - mixed).max()),
    }
