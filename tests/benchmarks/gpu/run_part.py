"""Run one benchmark by name and see to it that gpu-<name>.json is written: python run_part.py NAME.

A benchmark that publishes its own result does so; of one that only prints JSON the numbers become
rows without limits. One that is not there, or fails, is said and counts as missed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import HERE, RESULTS, Done, Row, publish

MOST = 60


def main() -> int:
    """Run it; 0 when every limit was reached."""
    name, arguments = sys.argv[1], sys.argv[2:]
    script = HERE / f"bench_{name}.py"
    if not script.exists():
        print(f"there is no {script.name}")
        return 1
    before = written()
    code, printed = shown([sys.executable, str(script), *arguments])
    if written() != before or code > 1:
        return int(code != 0)
    try:
        content = Done(code, 0.0, printed, "").json()
    except (ValueError, IndexError):
        return 1
    rows = list(flat(content))
    shown_rows = rows if len(rows) <= MOST else []  # more are for machines: the file has them
    return publish(name, content.get("what", name), shown_rows, {"details": content})


def shown(command: list[str]) -> tuple[int, str]:
    """Run a command, print its lines as they come, and give them back."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return child.returncode, "".join(lines)


def written() -> dict[Path, int]:
    """GPU results and when they were written."""
    return {path: path.stat().st_mtime_ns for path in RESULTS.glob("gpu-*.json")}


def flat(content: Any, name: str = "") -> Iterator[Row]:
    """Numbers of nested objects as rows named by their path."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from flat(value, f"{name} {key}".strip())
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield Row(name, content)


if __name__ == "__main__":
    sys.exit(main())
