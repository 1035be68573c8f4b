"""Step time with passes beside the same model without, in one process.

Two pairs of artifacts: the fusions of -O2 with every custom op on in both, and the passes that a
default build has beside none at all, where Inductor makes everything. Calls are taken in turn; a
ratio is the median of those of neighbouring rounds. Writes docs/benchmarks/passes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench_steps import (
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
from measure import in_pairs, judged

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.ops.register import load_ops
from vcc.engine.request import settle
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.session import Session, open_session

HIDDEN, LIMIT = 512, 1.02
WITHOUT = "without"
MODELS: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64},
}
NAMES = tuple(rule.name for rule in PASS_RULES)
FUSIONS = tuple(name for name in NAMES if name.startswith("fuse_"))
OPS = {"custom_ops": ["all"]}
PAIRS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "fusions": {OURS: OPS, WITHOUT: OPS | {"pass_config": dict.fromkeys(FUSIONS, False)}},
    "default": {OURS: {}, WITHOUT: {"pass_config": dict.fromkeys(NAMES, False)}},
}
"""What is compared, with passes and without."""
LIMITS = {"max_num_seqs": MAX_SEQS, "max_num_batched_tokens": MAX_TOKENS}


def runner_of(model: Path, dtype: str, config: dict[str, Any], store: Path) -> ModelRunner:
    """An artifact's runner, built in another process."""
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
    session = Session(settle(build_request(options)), Store.open(store), require_warm=True)
    return open_session(session, lengths=[1024] * MAX_SEQS).booted.runner


def measured(
    runners: Mapping[str, ModelRunner], options: argparse.Namespace, dtype: str
) -> Iterator[dict[str, Any]]:
    """One row a kind of step."""
    for step, (count, context, new) in STEPS.items():
        calls = {}
        for name, runner in runners.items():
            sequences = Sequences.of(runner, count, context + new)
            for start in range(0, context, 32):
                runner.step(sequences.batch(start, 32))
            calls[name] = partial(runner.step, sequences.batch(context, new))
        check_equal({name: call().clone() for name, call in calls.items()}, dtype)
        pair = in_pairs(calls[OURS], calls[WITHOUT], options.rounds, options.seconds)
        yield {"step": step, **asdict(pair)}


def rows_of(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """All rows: each pair of every model in every dtype."""
    for arch, fields in MODELS.items():
        model = write_weights(folder / arch, config_of(HIDDEN) | fields)
        for dtype in options.dtypes:
            for passes in options.pairs:
                runners = {
                    name: runner_of(model, dtype, config, folder / "store")
                    for name, config in PAIRS[passes].items()
                }
                for row in measured(runners, options, dtype):
                    yield {"model": arch, "dtype": dtype, "passes": passes, **row}


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtypes", nargs="+", default=[*TORCH], choices=[*TORCH])
    parser.add_argument("--pairs", nargs="+", default=[*PAIRS], choices=[*PAIRS])
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
        "a step with passes beside one without: fusions where every custom op is on, and passes "
        "of a default build beside none",
        ratios,
        LIMIT,
        rounds=options.rounds,
        threads=torch.get_num_threads(),
        rows=rows,
    )


if __name__ == "__main__":
    sys.exit(main())
