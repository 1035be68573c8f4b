"""What a process has in memory: its peak, and which files and heaps it consists of.

`ru_maxrss` is no measure of it: Linux carries it over exec, so a child begins with the peak of the
process that started it. VmHWM belongs to the program itself.
"""

from __future__ import annotations

import re
from pathlib import Path

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")

WATCHED = """
import json, sys
from vcc.cli.main import run
code = run(sys.argv[1:])
heavy = [m for m in ("torch", "triton", "transformers", "sympy") if m in sys.modules]
peak = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if "VmHWM" in line)
with open("/proc/self/smaps") as file:
    print(json.dumps({"heavy": heavy, "peak_rss": peak, "smaps": file.read()}), file=sys.stderr)
sys.exit(code)
"""
"""A program that runs a command of vcc; the last line of its errors says what it has in memory."""


def peak_bytes() -> int:
    """Most resident bytes that this process has had since its program began."""
    found = _PEAK.search(Path("/proc/self/status").read_text())
    if found is None:
        raise AssertionError("this system does not say what a process has in memory")
    return int(found[1]) << 10


def by_mapping(smaps: str, most: int = 12) -> dict[str, int]:
    """Resident bytes by what is mapped, the largest first; memory without a file is `anonymous`."""
    found: dict[str, int] = {}
    name = ""
    for line in smaps.splitlines():
        if (mapping := _MAPPING.match(line)) is not None:
            name = mapping[1].rpartition("/")[2] or "anonymous"
        elif line.startswith("Rss:"):
            found[name] = found.get(name, 0) + (int(line.split()[1]) << 10)
    return dict(sorted(found.items(), key=lambda one: -one[1])[:most])
