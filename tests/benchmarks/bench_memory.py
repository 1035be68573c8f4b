"""Memory, time and size of `vcc compile` for shapes of a large model, from its config.json alone.

Resident (RSS) and proportional (PSS) memory, summed over the process tree and sampled. Forked
workers share most pages with their parent: RSS counts those once for each process, PSS once in
all. The limit holds for the sum of RSS, the larger of the two. Writes docs/benchmarks/memory*.json,
one file a case.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from measure import write

POLL_SECONDS = 0.1
PEAK = "peak resident memory of the process tree, GB"
WALL, STORED = "wall time, s", "artifact, MB"
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}
"""Llama 3 8B."""

QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}
"""Qwen3-30B-A3B."""


@dataclass(frozen=True)
class Case:
    """A model's config and name, the most bytes that its build may take, and the target.

    With `seconds` and `stored`, wall time and megabytes of the artifact have limits too.
    """

    config: dict[str, object]
    name: str
    limit: float
    target: str = "cpu"
    seconds: float = 0
    stored: float = 0


CASES = {
    "memory": Case(LLAMA, "Llama 3 8B", 3e9),
    "memory-sm_90": Case(LLAMA, "Llama 3 8B", 1.5e9, "sm_90", seconds=40, stored=5),
    "memory-experts": Case(QWEN, "Qwen3-30B-A3B", 4e9),
    "memory-experts-sm_90": Case(QWEN, "Qwen3-30B-A3B", 4e9, "sm_90"),
}
"""By the name of the file that is written."""


@dataclass(frozen=True)
class Sample:
    """The tree at one moment: seconds since its start, and (name, RSS, PSS) of each process."""

    seconds: float
    processes: tuple[tuple[str, int, int], ...]

    @property
    def rss(self) -> int:
        """Bytes, shared pages once for each process."""
        return sum(rss for _, rss, _ in self.processes)

    @property
    def pss(self) -> int:
        """Bytes, shared pages once."""
        return sum(pss for _, _, pss in self.processes)

    def as_dict(self) -> dict[str, object]:
        """For the JSON, in MB."""
        rows = sorted(self.processes, key=lambda row: -row[2])
        return {
            "seconds": round(self.seconds, 1),
            "rss_mb": round(self.rss / 1e6),
            "pss_mb": round(self.pss / 1e6),
            "processes": [[n, round(rss / 1e6), round(pss / 1e6)] for n, rss, pss in rows],
        }


def sample(pid: int, start: float) -> Sample:
    """Look at a process and its descendants; those that just ended are left out."""
    found = []
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        try:
            memory = member.memory_full_info()
            found.append((member.name(), memory.rss, memory.pss))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return Sample(time.perf_counter() - start, tuple(found))


def watch(command: list[str], place: Path) -> tuple[list[Sample], dict]:
    """Run a command to its end, sampling; the samples and the JSON that it printed."""
    start = time.perf_counter()
    with (place / "out").open("w+") as out, (place / "err").open("w+") as err:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | {"VCC_CACHE_DIR": str(place / "store")},
        )
        samples = []
        while child.poll() is None:
            samples.append(sample(child.pid, start))
            time.sleep(POLL_SECONDS)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            sys.exit(f"exit {child.returncode}\n{out.read()}\n{err.read()}")
        return samples, json.load(out)


def main() -> int:
    """Measure, print, write; 1 when the peak is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=0, help="compile processes; 0 chooses")
    parser.add_argument("--case", choices=CASES, default="memory")
    given = parser.parse_args()
    jobs, case = given.jobs, CASES[given.case]
    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as name:
        model = Path(name) / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(case.config))
        words = ["compile", str(model), "--weights", "none", "--jobs", str(jobs), "--json"]
        words += [] if case.target == "cpu" else ["--target", case.target]
        samples, built = watch([sys.executable, "-m", "vcc.cli.main", *words], Path(name))
    rss, pss = (max(samples, key=lambda one: getattr(one, kind)) for kind in ("rss", "pss"))
    content = {
        "what": f"peak memory of vcc compile of {case.name} shapes, --weights none, bf16, for"
        f" {case.target}",
        "jobs": jobs,
        "samples": len(samples),
        "seconds": round(samples[-1].seconds, 1),
        "peak_rss": rss.as_dict(),
        "peak_pss": pss.as_dict(),
        **held(case, rss, samples[-1].seconds, built["size"]),
        "stages": built["info"]["stages"],
        "pieces": built["info"]["pieces"],
    }
    print(json.dumps({name: content[name] for name in ("seconds", "peak_rss", "peak_pss")}))
    print(f"written: {write(given.case, content)}")
    return int(any(content["ratios"][name] > limit for name, limit in content["limits"].items()))


def held(case: Case, peak: Sample, seconds: float, stored: int) -> dict[str, dict[str, float]]:
    """What was measured of that which has limits, and the limits."""
    found = {PEAK: peak.rss / 1e9}
    limits = {PEAK: case.limit / 1e9}
    if case.seconds:
        found |= {WALL: seconds, STORED: stored / 1e6}
        limits |= {WALL: case.seconds, STORED: case.stored}
    return {"ratios": {name: round(value, 3) for name, value in found.items()}, "limits": limits}


if __name__ == "__main__":
    sys.exit(main())
