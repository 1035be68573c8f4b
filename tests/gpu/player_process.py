"""A process that boots an artifact and steps it by a job's schedule, without torch of its own.

    python player_process.py JOB.json OUT.npz

The job names model, options, store, prompts (token ids by name), and runs: lists of steps, each
{prompt: tokens}. What a run leaves over of its prompts is fed token by token, all in one batch.
Logits of the wanted rows of every prompt are written as `<run>/<prompt>` [rows, vocab] fp32. With
`others`, so many boots of the same artifact come first and stay, so that addresses are other ones.
With `repeats`, the last step is repeated so often. Prints one JSON line: heavy modules, counters,
and what the repeats changed.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.config.kv_memory import KvMemory
from vcc.engine.monitor import Counters
from vcc.engine.request import settle
from vcc.engine.runtime.batch import StepBatch, as_float32
from vcc.engine.session import Session, open_session

CACHE = KvMemory.parse("4GiB")
"""More than any job needs: a mistake in it must not take the device from other tests."""

HEAVY = ("torch", "triton", "transformers", "sympy")


@dataclass
class Stepper:
    """Sequences whose every token is given, on scattered KV blocks."""

    runner: Any
    free: list[int] = field(default_factory=list)
    tables: dict[str, list[int]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.runner.limits.num_blocks))
        random.Random(0).shuffle(self.free)

    def step(
        self, work: Mapping[str, Sequence[int]], rows: Mapping[str, Sequence[int]]
    ) -> dict[str, np.ndarray]:
        """One step, repeated until every wanted row (of each sequence's own) was asked for."""
        counts = [len(tokens) for tokens in work.values()]
        batch = self.batch(work)
        found: dict[str, list[np.ndarray]] = {name: [] for name in work}
        for turn in range(max(1, *(len(rows[name]) for name in work))):
            own = [rows[n][turn] if turn < len(rows[n]) else c - 1 for n, c in zip(work, counts)]  # noqa: B905
            wanted = batch.query_start[:-1] + np.asarray(own, dtype=np.int32)
            logits = as_float32(self.runner.step(replace(batch, logits_index=wanted)))
            for index, name in enumerate(work):
                if turn < len(rows[name]):
                    found[name].append(logits[index].copy())
        return {name: np.stack(parts) for name, parts in found.items() if parts}

    def batch(self, work: Mapping[str, Sequence[int]]) -> StepBatch:
        """The step of each sequence's next tokens."""
        counts = [len(tokens) for tokens in work.values()]
        starts = [0, *np.cumsum(counts).tolist()]
        places = [(name, p) for name, tokens in work.items() for p in self._grow(name, len(tokens))]
        width = self.runner.limits.max_blocks_per_seq
        fields = {
            "input_ids": [token for tokens in work.values() for token in tokens],
            "positions": [position for _, position in places],
            "slot_mapping": [self._slot(name, position) for name, position in places],
            "block_table": [self.tables[n] + [0] * (width - len(self.tables[n])) for n in work],
            "seq_lens": [self.lengths[name] for name in work],
            "query_start": starts,
            "logits_index": [end - 1 for end in starts[1:]],
        }
        arrays = {name: np.asarray(values, dtype=np.int32) for name, values in fields.items()}
        return StepBatch(**arrays, uniform=starts[-1] == len(work))

    def _grow(self, name: str, count: int) -> list[int]:
        start = self.lengths.get(name, 0)
        self.lengths[name] = start + count
        table = self.tables.setdefault(name, [])
        while len(table) * self.runner.limits.block_size < start + count:
            table.append(self.free.pop())
        return list(range(start, start + count))

    def _slot(self, name: str, position: int) -> int:
        size = self.runner.limits.block_size
        return self.tables[name][position // size] * size + position % size


def repeated(runner: Any, tokens: Sequence[int], times: int) -> dict[str, Any]:
    """Whether a decode step that is repeated drifts, and by how much this process grows."""
    stepper = Stepper(runner)
    stepper.step({"one": tokens}, {"one": []})
    batch = stepper.batch({"one": tokens[-1:]})
    first = as_float32(runner.step(batch)).tobytes()
    before = resident()
    same = all(as_float32(runner.step(batch)).tobytes() == first for _ in range(max(1, times)))
    return {"same": same, "growth": resident() - before}


def resident() -> int:
    """Resident bytes of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def play(
    runner: Any,
    prompts: Mapping[str, Sequence[int]],
    schedule: Sequence[Mapping[str, int]],
    wanted: Mapping[str, Sequence[int]],
) -> dict[str, np.ndarray]:
    """Logits of the wanted positions of each prompt, in order."""
    stepper, done = Stepper(runner), dict.fromkeys(prompts, 0)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in prompts}

    def feed(step: Mapping[str, int]) -> None:
        work = {n: prompts[n][done[n] : done[n] + count] for n, count in step.items()}
        inside = {n: range(done[n], done[n] + len(tokens)) for n, tokens in work.items()}
        rows = {n: [p - done[n] for p in wanted[n] if p in inside[n]] for n in work}
        for name, logits in stepper.step(work, rows).items():
            parts[name].append(logits)
        for name, tokens in work.items():
            done[name] += len(tokens)

    for step in schedule:
        feed(step)
    while left := [n for n in prompts if done[n] < len(prompts[n])]:
        feed(dict.fromkeys(left, 1))
    return {name: np.concatenate(found) for name, found in parts.items() if found}


def boot(job: Mapping[str, Any], counters: Counters) -> Any:
    """The booted artifact of the job; a miss is an error."""
    asked = build_request(ModelOptions(job["model"], **job["options"]))
    store = Store.open(Path(job["store"]))
    session = Session(settle(asked), store, job.get("golden", "one"), require_warm=True)
    lengths = [len(tokens) + 8 for tokens in job["prompts"].values()]
    return open_session(replace(session, counters=counters, kv_memory=CACHE), lengths).booted


def main() -> None:
    """Run the job."""
    job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    counters = Counters()
    others = [boot(job, Counters()) for _ in range(job.get("others", 0))]
    booted = boot(job, counters)
    runner = booted.runner
    found = {}
    for name, schedule in job["runs"].items():
        logits = play(runner, job["prompts"], schedule, job["wanted"])
        found |= {f"{name}/{prompt}": values for prompt, values in logits.items()}
    np.savez(out, **found)
    drift = repeated(runner, [5, 6, 7, 8], job["repeats"]) if job.get("repeats") else {}
    booted.account(counters)
    heavy = [name for name in HEAVY if name in sys.modules]
    told = {"heavy": heavy, "counters": counters.as_dict(), "drift": drift}
    told["products"] = runner.gemm_routes()
    print(json.dumps(told | {"boots": 1 + len(others)}))


if __name__ == "__main__":
    main()
