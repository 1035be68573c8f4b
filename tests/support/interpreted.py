"""Cases that run by Triton's interpreter: in a process of their own, as it is chosen at import."""

from __future__ import annotations

import os
import subprocess
import sys

from support.sources import ROOT


def run_interpreted(module: str, *words: str) -> None:
    """Run a module of `support` with the interpreter.

    Args:
        module: such as `expert_cases`.
        words: its arguments.

    Raises:
        AssertionError: with what it said, when it failed.
    """
    command = [sys.executable, "-m", f"support.{module}", *words]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, cwd=ROOT / "tests", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
