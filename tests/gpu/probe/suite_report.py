"""Run the parts of the suite that need no GPU on a machine that has one; write a summary as JSON.

    python tests/gpu/probe/suite_report.py --out FILE.json tests/cache tests/engine/ops ...

For machines on which the package was installed by hand: the report names the versions, counts each
folder's results, and keeps the message of every failure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PACKAGES = ("torch", "triton", "transformers", "numpy", "msgspec", "scikit-build-core", "vcc")
OUTCOMES = ("failure", "error", "skipped")


def run(folder: str, out: Path, options: list[str]) -> dict[str, Any]:
    """One folder of tests in a process of its own; counts, seconds and failures."""
    report = out.with_suffix(f".{folder.replace('/', '-')}.xml")
    command = [sys.executable, "-m", "pytest", "-q", folder, f"--junitxml={report}", *options]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = round(time.perf_counter() - begin, 1)
    if not report.exists():
        return {"exit": done.returncode, "seconds": seconds, "output": done.stdout[-2000:]}
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    report.unlink()
    outcomes = Counter(_outcome(case) for case in cases)
    failures = [_failure(case) for case in cases if _outcome(case) in ("failure", "error")]
    return {"exit": done.returncode, "seconds": seconds, **outcomes, "failures": failures}


def _outcome(case: ElementTree.Element) -> str:
    return next((kind for kind in OUTCOMES if case.find(kind) is not None), "passed")


def _failure(case: ElementTree.Element) -> str:
    found = case.find("failure") if case.find("failure") is not None else case.find("error")
    message = found.get("message", "") if found is not None else ""
    return f"{case.get('classname')}::{case.get('name')}: {message[:600]}"


def versions() -> dict[str, str]:
    """Versions of what the tests rest on."""
    found = {"python": platform.python_version(), "cores": str(os.cpu_count())}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def main() -> int:
    """Run every folder, all at once; 1 when anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("folders", nargs="+")
    known, rest = parser.parse_known_args()
    report: dict[str, Any] = {"versions": versions(), "folders": {}}
    with ThreadPoolExecutor(len(known.folders)) as pool:
        found = pool.map(lambda folder: run(folder, known.out, rest), known.folders)
        report["folders"] = dict(zip(known.folders, found, strict=True))
    known.out.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(part["exit"] for part in report["folders"].values()))


if __name__ == "__main__":
    sys.exit(main())
