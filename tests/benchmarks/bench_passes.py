"""Step time with fusions beside the same operators without, in one process.

Both artifacts run every custom op as its own kernel; the fusions of -O2 are on in one of them and
off in the other. Calls are taken in turn as in bench_steps.py. Writes docs/benchmarks/passes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
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
    in_turn,
    write_weights,
)
from measure import verdicts, write

from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.ops.register import load_ops
from vcc.engine.request import settle
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.session import Session, open_session

HIDDEN, LIMIT = 512, 1.02
WITHOUT = "without"
BUSY = "the machine was busy with other work, so this is to be measured again"
MODELS: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64},
}
FUSIONS = tuple(rule.name for rule in PASS_RULES if rule.name.startswith("fuse_"))
CONFIGS: Mapping[str, dict[str, Any]] = {
    OURS: {"custom_ops": ["all"]},
    WITHOUT: {"custom_ops": ["all"], "pass_config": dict.fromkeys(FUSIONS, False)},
}
LIMITS = {"max_num_seqs": MAX_SEQS, "max_num_batched_tokens": MAX_TOKENS}


def runner_of(model: Path, dtype: str, config: dict[str, Any], store: Path) -> ModelRunner:
    """An artifact's runner, built in another process."""
    words = [w for n, v in LIMITS.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    text = json.dumps(config)
    command = [sys.executable, "-m", "vcc.cli.main", "compile", str(model), "--dtype", dtype]
    subprocess.run(
        [*command, "--compilation-config", text, *words],
        env=os.environ | {"VCC_CACHE_DIR": str(store)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    request = build_request(ModelOptions(str(model), dtype=dtype, config=text, **LIMITS))
    session = Session(settle(request), Store.open(store), require_warm=True)
    return open_session(session, lengths=[1024] * MAX_SEQS).booted.runner


def measured(
    runners: Mapping[str, ModelRunner], options: argparse.Namespace, dtype: str
) -> list[dict[str, Any]]:
    """One row a kind of step."""
    rows = []
    for step, (count, context, new) in STEPS.items():
        calls = {}
        for name, runner in runners.items():
            sequences = Sequences.of(runner, count, context + new)
            for start in range(0, context, 32):
                runner.step(sequences.batch(start, 32))
            calls[name] = partial(runner.step, sequences.batch(context, new))
        check_equal({name: call().clone() for name, call in calls.items()}, dtype)
        rows.append({"step": step, "us": in_turn(calls, options.rounds, options.seconds)})
    return rows


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    parser.add_argument("--dtypes", nargs="+", default=[*TORCH], choices=[*TORCH])
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    load_ops()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as name:
        for arch, fields in MODELS.items():
            model = write_weights(Path(name) / arch, config_of(HIDDEN) | fields)
            for dtype in options.dtypes:
                runners = {
                    key: runner_of(model, dtype, config, Path(name) / "store")
                    for key, config in CONFIGS.items()
                }
                found = measured(runners, options, dtype)
                rows += [{"model": arch, "dtype": dtype, **row} for row in found]
                print("\n".join(json.dumps(row) for row in rows[-len(found) :]), flush=True)
    ratios = {
        f"{row['model']} {row['dtype']} {row['step']}: with / without passes": round(
            row["us"][OURS] / row["us"][WITHOUT], 3
        )
        for row in rows
    }
    limits = dict.fromkeys(ratios, LIMIT)
    missed = verdicts(ratios, limits)
    load = os.getloadavg()[0]
    content = {
        "what": "a step with fusions and without, every custom op on in both; "
        f"{BUSY if load > (os.cpu_count() or 1) else 'the machine was calm'}",
        "rounds": options.rounds,
        "threads": torch.get_num_threads(),
        "load": round(load, 1),
        "rows": rows,
        "ratios": ratios,
        "limits": limits,
    }
    print(f"load of the machine {load:.1f}; written: {write('passes', content)}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
