"""Play a node table on a GPU without torch: numbers, graphs against plain launches, times.

    python tests/gpu/probe/play_table.py --table DIR --reference FILE.npz --out FILE.json

Boots from the table and the demo's weights, compares logits and tokens with the reference file, and
runs every declared step size as plain launches, as a captured graph and as a graph built node by
node, which must agree bit for bit. A second process at other addresses must give equal logits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checks import BLOCKS, Runner, as_fp32, chunks, greedy, numbers, sequences
from driver import Driver
from player import Clock, Player
from table import read
from weights import parameters

from vcc.engine.models.source import open_source

Array = npt.NDArray[Any]

DECODES = (1, 2, 4, 8, 16, 32, 64)
MIXED = ((17, 1), (64, 4), (200, 3), (512, 8))
"""(rows, sequences) of the sizes that get graphs: uniform decode T = B, and prefill."""

REPLAYS = 200
SHIFT = 123 << 20
UNWANTED = ("torch", "triton", "transformers", "sympy")


def boot(folder: Path, shift: int, clock: Clock) -> tuple[Player, dict[str, Any]]:
    """From the table and the weights file to a player that can step."""
    table, blobs = read(folder)
    clock.mark("table_read_and_checked")
    driver = Driver()
    driver.open()
    clock.mark("context")
    player = Player(driver, table, blobs, blocks=BLOCKS, shift=shift, mark=clock.mark)
    arrays, names = parameters(table, open_source("demo").tensors)
    for value in table.values:
        if value.role == "constant":
            arrays[value.name] = np.frombuffer(blobs[table.constants[value.target]], np.uint8)
            names[value.name] = value.name
    clock.mark("weights_mapped")
    size = player.bind(arrays, names)
    clock.mark("weights_uploaded")
    facts = {
        "weights": size,
        "kv_cache": player.cache_bytes,
        "workspace": player.workspace_bytes,
        "workspace_without_reuse": sum(_buffers(player).values()),
        "table": sum(f.stat().st_size for f in folder.iterdir()),
    }
    return player, facts


def _buffers(player: Player) -> Mapping[str, int]:
    from steps import expand

    return expand(player.table, player.largest).buffers


def graphs(runner: Runner) -> dict[str, Any]:
    """Each declared size three ways; bitwise comparison, and times in microseconds."""
    player, report = runner.player, {}
    for tokens, seqs in (*((n, n) for n in DECODES), *MIXED):
        started = time.perf_counter()
        step = runner.prepared(tokens, seqs)
        expanded = time.perf_counter()
        built = player.driver.built(step.nodes)
        made = time.perf_counter()
        runner.graphs[tokens, seqs] = player.driver.instantiate(built)
        done = time.perf_counter()
        captured = player.driver.instantiate(player.driver.captured(step.nodes))
        ways: dict[str, Callable[[], None]] = {
            "plain": lambda step=step: player.launch(step),  # type: ignore[misc]
            "built": lambda key=(tokens, seqs): player.driver.replay(runner.graphs[key]),  # type: ignore[misc]
            "captured": lambda graph=captured: player.driver.replay(graph),  # type: ignore[misc]
        }
        player.write(_filled(tokens, seqs))
        results = {name: _outcome(player, run, seqs) for name, run in ways.items()}
        report[f"T{tokens}_B{seqs}"] = {
            "nodes": len(step.nodes),
            "expand_us": _micro(started, expanded),
            "build_us": _micro(expanded, made),
            "instantiate_us": _micro(made, done),
            "bitwise_equal": len(set(results.values())) == 1,
            "us": {name: _median_us(player, run) for name, run in ways.items()},
        }
    return report


def _filled(tokens: int, seqs: int) -> dict[str, Array]:
    """Inputs of random tokens, the rows shared out among the sequences."""
    draw = np.random.default_rng(tokens * 1000 + seqs)
    counts = [tokens // seqs + (i < tokens % seqs) for i in range(seqs)]
    work = {i: draw.integers(1, 2048, count).tolist() for i, count in enumerate(counts)}
    return sequences().batch(work, tokens, seqs)


def _outcome(player: Player, run: Callable[[], None], seqs: int) -> str:
    """Digest of logits and caches after a step on a poisoned workspace and fresh caches."""
    player.poison()
    player.fill_caches()
    run()
    logits = player.logits(seqs)
    if not np.isfinite(as_fp32(logits)).all():
        return "not finite"
    return hashlib.sha256(logits.tobytes() + player.caches().tobytes()).hexdigest()


def _median_us(player: Player, run: Callable[[], None]) -> float:
    """Median over rounds of back-to-back steps: time a step takes when steps follow each other."""
    rounds = []
    for _ in range(5):
        player.driver.wait()
        begin = time.perf_counter()
        for _ in range(REPLAYS // 5):
            run()
        player.driver.wait()
        rounds.append((time.perf_counter() - begin) / (REPLAYS // 5))
    return round(1e6 * statistics.median(rounds), 1)


def _micro(begin: float, end: float) -> int:
    return round(1e6 * (end - begin))


def _resident() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(x for x in status.splitlines() if x.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def play(folder: Path, reference: Mapping[str, Array], shift: int) -> dict[str, Any]:
    """Everything in this process, as one report."""
    clock = Clock()
    player, facts = boot(folder, shift, clock)
    runner = Runner(player)
    first = _filled(17, 1)
    runner.step(first)
    clock.mark("first_step_17_tokens")
    resident = _resident()
    report = {
        "device": player.driver.describe(),
        "boot_ms": {name: round(ms, 1) for name, ms in clock.stages.items()},
        "resident_mib_after_boot": resident,
        "bytes": facts,
        "graphs": graphs(runner),
    }
    report["numbers"], report["logits_digest"] = numbers(runner, reference)
    report["greedy"] = greedy(runner, reference)
    report["schedule_differences"] = chunks(runner, reference)
    report["unwanted_modules"] = sorted(set(UNWANTED) & set(sys.modules))
    return report


def main() -> int:
    """Play, play again elsewhere, write the report; 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shift", type=int, default=0)
    options = parser.parse_args()
    with np.load(options.reference) as stored:
        reference = dict(stored)
    report = play(options.table, reference, options.shift)
    if not options.shift:
        report["second_placement"] = _again(options, report)
    report["verdict"] = verdict(report)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["verdict"]))
    return 0 if all(report["verdict"].values()) else 1


def _again(options: Any, report: Mapping[str, Any]) -> dict[str, Any]:
    """The same in a fresh process whose memory lies elsewhere."""
    out = options.out.with_suffix(".again.json")
    command = [sys.executable, __file__, "--table", options.table, "--shift", SHIFT]
    command += ["--reference", options.reference, "--out", out]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    other = json.loads(out.read_text())
    out.unlink()
    return {
        "equal": other["logits_digest"] == report["logits_digest"],
        "boot_ms": other["boot_ms"],
    }


def verdict(report: Mapping[str, Any]) -> dict[str, bool]:
    """What must hold, by name."""
    found = {
        "numbers_rule": all(n["rule_holds"] for n in report["numbers"].values()),
        "graphs_bitwise_equal": all(g["bitwise_equal"] for g in report["graphs"].values()),
        "nothing_unwanted_imported": not report["unwanted_modules"],
    }
    if "second_placement" in report:
        found["equal_at_other_addresses"] = report["second_placement"]["equal"]
    return found


if __name__ == "__main__":
    sys.exit(main())
