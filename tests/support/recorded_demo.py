"""The demo, recorded on a device and run without torch."""

from __future__ import annotations

import json
from pathlib import Path

from support.gpu_jobs import Done, vcc

LIMITS = ("--max-model-len", 256, "--max-num-seqs", 8)
SIZES = ("--mode", "full", "--shapes", "1,2,4,8,64")
PROMPT = ("--prompt", "It is a truth", "--max-new-tokens", 24, "--temperature", 0)


def compiled(store: Path, *words: object, code: int = 0) -> Done:
    """What `vcc compile` said; it ended with `code`."""
    done = vcc("compile", *words, "--json", store=store, timeout=540)
    assert done.code == code, f"exit {done.code}\n{done.text}"
    return done


def recorded_demo(folder: Path, mode: str, dtype: str) -> None:
    """Record, run without torch, and in fp32 compare the tokens with the CPU's."""
    store, target = folder / "store", ("--target", "sm_90", "--dtype", dtype)
    found = compiled(store, "demo", "--compile", mode, *target, *SIZES, *LIMITS).json
    recorded = found["info"]["recorded"]
    print(json.dumps(recorded, indent=1))
    assert [one["tokens"] for one in recorded] == [64, 8, 4, 2, 1]
    assert all(one["nodes"] and one["pointers"] for one in recorded)
    words = ("--compile", mode, *target, *SIZES, *LIMITS, "--require-warm")
    here = tokens(store, *words)
    if dtype == "fp32":
        cpu = tokens(folder / "cpu", "--compile", "none", "--target", "cpu", "--dtype", dtype)
        assert here == cpu


def tokens(store: Path, *words: object) -> list[list[int]]:
    """Token ids of each prompt's answer."""
    done = vcc("run", "demo", *words, *PROMPT, "--json", store=store)
    assert done.code == 0, done.text
    return [list(one["token_ids"]) for one in done.json["prompts"]]
