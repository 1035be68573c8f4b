"""Processor time of a step with passes beside the same model without, in one process.

Two pairs of artifacts: the fusions of -O2 with every custom op on in both, and the passes that a
default build has beside none at all, where Inductor makes everything.

A step of a small model moves less than what surrounds it, so that is kept equal: one thread, as
threads that wait for each other count too; processor time, as others may use the machine; one copy
of the weights, as two lie at different places of the caches, which alone moves a step by 4 %. Each
artifact is opened twice, and the calls of all four are taken in turn; how far two openings of the
same artifact are apart says what the ratio is worth. Writes docs/benchmarks/passes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from bench_steps import (
    FILL,
    MAX_SEQS,
    MAX_TOKENS,
    OURS,
    STEPS,
    TORCH,
    Sequences,
    check_equal,
    config_of,
    write_weights,
)
from measure import Openings, in_squares, judged

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.models.weights import load_weights
from vcc.engine.ops.register import load_ops
from vcc.engine.request import settle
from vcc.engine.runtime import torch_loader
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.session import Session, open_session

HIDDEN, LIMIT = 512, 1.02
WITHOUT = "without"
MODELS: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64},
}
FUSIONS = {
    rule.name: rule.from_level is not None for rule in PASS_RULES if rule.name.startswith("fuse_")
}
OTHERS = {rule.name: True for rule in PASS_RULES if rule.name not in FUSIONS}
ALL, NONE = {"custom_ops": ["all"]}, {"custom_ops": ["none"]}
PAIRS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "fusions": {
        OURS: ALL | {"pass_config": OTHERS | FUSIONS},
        WITHOUT: ALL | {"pass_config": OTHERS | dict.fromkeys(FUSIONS, False)},
    },
    "default": {
        OURS: NONE | {"pass_config": OTHERS | dict.fromkeys(FUSIONS, False)},
        WITHOUT: NONE | {"pass_config": dict.fromkeys(OTHERS | FUSIONS, False)},
    },
}
"""What is compared, with passes and without. Every switch is said, as one that is left open finds
the newer of both artifacts. The first of the second pair is a default build's: where Inductor makes
the custom ops, no fusion has anything to fuse."""
TOLD = {
    "fusions": "fusions where every custom op is on, beside none",
    "default": "passes of a default build, beside none",
}
"""What each pair is, for the page."""
LIMITS = {"max_num_seqs": MAX_SEQS, "max_num_batched_tokens": MAX_TOKENS}


@contextmanager
def one_copy_of_weights() -> Iterator[None]:
    """Every artifact that is opened inside reads the same tensors."""
    kept: list[Any] = []

    def load(*given: Any) -> Any:
        kept[:] = kept or [load_weights(*given)]
        return kept[0]

    with mock.patch.object(torch_loader, "load_weights", load):
        yield


def session_of(model: Path, dtype: str, config: dict[str, Any], store: Path) -> Session:
    """What opens an artifact, built in another process."""
    words = [w for n, v in LIMITS.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    text = json.dumps(config)
    command = [sys.executable, "-m", "vcc.cli.main", "compile", str(model), "--dtype", dtype]
    subprocess.run(
        [*command, "--target", "cpu", "--compilation-config", text, *words],
        env=os.environ | {"VCC_CACHE_DIR": str(store)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    options = ModelOptions(str(model), dtype=dtype, target="cpu", config=text, **LIMITS)
    return Session(settle(build_request(options)), Store.open(store), require_warm=True)


def opened(sessions: Mapping[str, Session]) -> dict[str, tuple[ModelRunner, ModelRunner]]:
    """Two runners of each artifact over one copy of the weights."""
    with one_copy_of_weights():
        lengths = [1024] * MAX_SEQS
        ready = {n: [open_session(one, lengths) for _ in "12"] for n, one in sessions.items()}
    if len({one.artifact for found in ready.values() for one in found}) != len(ready):
        sys.exit("one artifact was found for both configurations")
    return {name: (one.booted.runner, two.booted.runner) for name, (one, two) in ready.items()}


def prepared(runner: ModelRunner, step: str) -> Callable[[], torch.Tensor]:
    """A step that may be repeated, its caches filled."""
    count, context, new = STEPS[step]
    sequences = Sequences.of(runner, count, context + new)
    for start in range(0, context, FILL):
        runner.step(sequences.batch(start, FILL))
    return partial(runner.step, sequences.batch(context, new))


def measured(
    runners: Mapping[str, tuple[ModelRunner, ModelRunner]],
    options: argparse.Namespace,
    dtype: str,
) -> Iterator[dict[str, Any]]:
    """One row a kind of step."""
    for step in STEPS:
        calls: dict[str, Openings] = {
            name: (prepared(one, step), prepared(other, step))
            for name, (one, other) in runners.items()
        }
        check_equal({name: one().clone() for name, (one, _) in calls.items()}, dtype)
        found = in_squares(calls[OURS], calls[WITHOUT], options.rounds, options.seconds)
        yield {"step": step, **asdict(found)}


def rows_of(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """All rows: each pair of every model in every dtype."""
    for arch, fields in MODELS.items():
        model = write_weights(folder / arch, config_of(HIDDEN) | fields)
        for dtype in options.dtypes:
            for passes in options.pairs:
                sessions = {
                    name: session_of(model, dtype, config, options.store or folder / "store")
                    for name, config in PAIRS[passes].items()
                }
                for row in measured(opened(sessions), options, dtype):
                    yield {"model": arch, "dtype": dtype, "passes": passes, **row}


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=[*TORCH], choices=[*TORCH])
    parser.add_argument("--pairs", nargs="+", default=[*PAIRS], choices=[*PAIRS])
    parser.add_argument("--store", type=Path, help="keep artifacts there for another run")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(options.threads)
    load_ops()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as name:
        for row in rows_of(options, Path(name)):
            rows.append(row)
            print(json.dumps(row), flush=True)
    ratios = {
        f"{row['model']} {row['dtype']} {row['step']}, {row['passes']}: with / without": row[
            "ratio"
        ]
        for row in rows
    }
    return judged(
        "passes",
        "processor time of a step with passes beside one without, one thread: "
        f"{'; '.join(TOLD[pair] for pair in options.pairs)}; two openings of the same artifact "
        f"differ by a factor of up to {max(row['same'] for row in rows)}",
        ratios,
        LIMIT,
        rounds=options.rounds,
        threads=torch.get_num_threads(),
        rows=rows,
    )


if __name__ == "__main__":
    sys.exit(main())
