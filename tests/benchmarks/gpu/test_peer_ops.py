"""The operators of the GPU benchmarks' peer compute attention, by the interpreter here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).with_name("check_peer_ops.py")


def test_the_peers_operators_are_right() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(CHECK)],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    errors = json.loads(done.stdout)
    assert max(errors.values()) < 1e-5, errors
