"""Cold compile of a random Llama by depth: `vcc compile` beside torch.compile, both from nothing.

Wall time of the whole process and peak memory over its tree. Both compile one form for all token
counts and batch sizes; the peer also runs one step, because that is when torch.compile compiles.
Beside that, of vcc's own stages: trace, passes and partition in seconds a layer, and how much the
compile stage grows from the least to the most layers, which have equal pieces.
Writes docs/benchmarks/compile.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from measure import VCC, Run, median, run, verdicts, write

PEER = str(Path(__file__).with_name("peer.py"))
LIMITS = {16: 0.6, 32: 0.35}
FRONT, FRONT_LIMIT = ("trace", "passes", "partition"), 0.3
GROWTH_LIMIT = 1.1
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_config(place: Path, layers: int) -> Path:
    """A model directory that holds a configuration and no weights."""
    directory = place / f"llama-{layers}"
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    return directory


def no_caches(fresh: str) -> dict[str, str]:
    """Variables under which nothing of an earlier run is found.

    Inductor keeps precompiled headers beside its cache, in the temporary folder: cold is without.
    """
    temporary = Path(fresh) / "tmp"
    temporary.mkdir(exist_ok=True)
    return {"TORCHINDUCTOR_CACHE_DIR": f"{fresh}/inductor", "TMPDIR": str(temporary)}


def ours(model: Path, fresh: str) -> Run:
    """A cold `vcc compile` in a store of its own."""
    command = [VCC, "compile", str(model), "--mode", "full", "--dtype", "fp32"]
    own = {"VCC_CACHE_DIR": f"{fresh}/store", **no_caches(fresh)}
    return run([*command, "--weights", "none", "--json"], memory=True, **own)


def theirs(model: Path, fresh: str) -> Run:
    """A cold torch.compile of the same decoder."""
    own = no_caches(fresh)
    return run([sys.executable, PEER, "--config", str(model)], memory=True, **own)


def measure(layers: int, repeat: int) -> dict[str, object]:
    """Medians of both at one depth."""
    found: dict[str, list[Run]] = {"vcc": [], "torch.compile": []}
    for _ in range(repeat):
        for name, cold in (("vcc", ours), ("torch.compile", theirs)):
            with tempfile.TemporaryDirectory(prefix="vcc-bench-") as fresh:
                found[name].append(cold(write_config(Path(fresh), layers), fresh))
    row: dict[str, object] = {"layers": layers}
    for name, runs in found.items():
        row[f"{name} seconds"] = median([r.seconds for r in runs])
        row[f"{name} peak MB"] = round(max(r.peak_bytes for r in runs) / 1e6)
    stages = [r.json()["info"]["stages"] for r in found["vcc"]]
    row["front seconds a layer"] = median([sum(s[n] for n in FRONT) / layers for s in stages])
    row["compile stage seconds"] = median([s["compile"] for s in stages])
    row["ratio"] = round(row["vcc seconds"] / row["torch.compile seconds"], 3)
    print(json.dumps(row), flush=True)
    return row


def main() -> int:
    """Measure each depth, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 16, 32])
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    rows = [measure(layers, options.repeat) for layers in options.layers]
    deep = [r for r in rows if r["layers"] in LIMITS]
    ratios = {f"{r['layers']} layers": r["ratio"] for r in deep}
    limits = {f"{layers} layers": limit for layers, limit in LIMITS.items()}
    for r in deep:
        name = f"trace to partition, {r['layers']} layers, s a layer"
        ratios[name], limits[name] = r["front seconds a layer"], FRONT_LIMIT
    stages = [r["compile stage seconds"] for r in rows]
    ratios["compile stage, most / least layers"] = stages[-1] / stages[0]
    limits["compile stage, most / least layers"] = GROWTH_LIMIT
    missed = verdicts(ratios, limits)
    content = {
        "what": "cold compile of a random Llama, hidden 512, fp32: seconds, peak MB of the tree",
        "repeat": options.repeat,
        "rows": rows,
        "ratios": ratios,
        "limits": limits,
    }
    print(f"written: {write('compile', content)}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
