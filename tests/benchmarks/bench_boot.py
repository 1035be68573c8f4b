"""Warm boot of the demo: process start to first token, beside its floor and its peer.

Three kinds of process, interleaved so that a slow moment of the machine hits all of them:
`import torch` alone (the floor), `vcc run demo` from an artifact, and the same decoder under
torch.compile with a warm cache. Writes docs/benchmarks/boot.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from measure import VCC, median, run, verdicts, write

PROMPT = "It is a truth"
PEER = str(Path(__file__).with_name("peer.py"))
BF16 = ("--dtype", "bf16")
ONE_TOKEN = ("--max-new-tokens", "1", "--temperature", "0", "--require-warm")
LIMITS = {"vcc / import torch": 1.6, "vcc / torch.compile warm": 1 / 3}


def main() -> int:
    """Measure, print, write; 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory(prefix="vcc-bench-") as place:
        own = {"VCC_CACHE_DIR": f"{place}/store", "TORCHINDUCTOR_CACHE_DIR": f"{place}/unused"}
        peers = {"TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor"}
        commands = {
            "import torch": ([sys.executable, "-c", "import torch"], {}),
            "vcc": (
                [VCC, "run", "demo", *BF16, "--prompt", PROMPT, *ONE_TOKEN, "--json"],
                own,
            ),
            "torch.compile warm": (
                [
                    sys.executable,
                    PEER,
                    "--model",
                    "demo",
                    "--dtype",
                    "bfloat16",
                    "--prompt",
                    PROMPT,
                ],
                peers,
            ),
        }
        run([VCC, "compile", "demo", *BF16, "--mode", "full"], **own)
        for command, environment in commands.values():
            run(command, **environment)  # fills caches and page cache
        runs = {name: [] for name in commands}
        for _ in range(repeat):
            for name, (command, environment) in commands.items():
                runs[name].append(run(command, **environment))
    return report(runs)


def report(runs: dict[str, list]) -> int:
    """First token for the two that make one, whole process for the floor."""
    last = {name: runs[name][-1].json() for name in ("vcc", "torch.compile warm")}
    tokens = last["vcc"]["prompts"][0]["token_ids"][0], last["torch.compile warm"]["token"]
    if tokens[0] != tokens[1]:
        sys.exit(f"not the same model: first tokens {tokens}")
    seconds = {"import torch": median([r.seconds for r in runs["import torch"]])}
    for name in last:
        seconds[name] = median([r.json()["first_token_seconds"] for r in runs[name]])
    ratios = {
        "vcc / import torch": round(seconds["vcc"] / seconds["import torch"], 3),
        "vcc / torch.compile warm": round(seconds["vcc"] / seconds["torch.compile warm"], 3),
    }
    content = {
        "what": "process start to first token of the demo, medians in seconds",
        "repeat": len(runs["vcc"]),
        "seconds": seconds,
        "process_seconds": {n: median([r.seconds for r in found]) for n, found in runs.items()},
        "vcc_phases": last["vcc"]["phases"],
        "ratios": ratios,
        "limits": {name: round(limit, 3) for name, limit in LIMITS.items()},
    }
    for name, value in seconds.items():
        print(f"{name:44} {value:6.3f} s")
    missed = verdicts(ratios, LIMITS)
    print(f"written: {write('boot', content)}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
