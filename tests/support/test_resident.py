"""The peak of a process is its own, and its memory is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.resident import WATCHED, by_mapping, peak_bytes

LARGE = 400 << 20


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it() -> None:
    held = bytearray(b"x" * LARGE)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "--version"], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stderr.strip().splitlines()[-1])
    assert len(held) == LARGE <= peak_bytes()
    assert told["peak_rss"] < LARGE // 2
    assert told["heavy"] == []


def test_memory_is_named_by_what_is_mapped() -> None:
    found = by_mapping(Path("/proc/self/smaps").read_text())
    assert sum(found.values()) > 1 << 20
    assert "anonymous" in found or "[heap]" in found
    assert list(found.values()) == sorted(found.values(), reverse=True)
