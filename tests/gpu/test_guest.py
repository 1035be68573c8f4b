"""Another program's Triton kernels on a GPU: made once, stored, used by the next run elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch, triton, triton.language as tl

@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, at < n), at < n)

@torch.compile
def softened(x):
    return torch.softmax(x * 2 + 1, dim=-1).sum(dim=0)

x = torch.arange(4096.0, device="cuda").reshape(8, 512) / 4096
y = torch.empty_like(x)
twice[(4,)](x, y, x.numel(), BLOCK=1024)
torch.testing.assert_close(y, 2 * x)
torch.testing.assert_close(softened(x), torch.softmax(x * 2 + 1, dim=-1).sum(dim=0))
print("right")
"""
VCC = "from vcc.cli.main import main; main()"
COMPILED = ("FX graphs", "autograd graphs", "Triton kernels", "Triton launchers")


def run(folder: Path, script: Path) -> dict:
    report = folder / "report.json"
    options = ["run", "--report", str(report), "--name", "softened"]
    places = {"VCC_CACHE_DIR": str(folder / "store"), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", VCC, *options, "--", sys.executable, str(script)],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    print(done.stderr)
    return json.loads(report.read_text())


def test_kernels_of_one_run_are_used_by_the_next_in_another_folder(tmp_path: Path) -> None:
    script = tmp_path / "softened.py"
    script.write_text(PROGRAM)
    cold, warm = run(tmp_path, script), run(tmp_path, script)
    made = {row["kind"]: row["made"] for row in cold["kinds"]}
    assert made["Triton kernels"] >= 2
    assert made["FX graphs"] >= 1
    again = {row["kind"]: row["made"] for row in warm["kinds"]}
    assert {kind: again.get(kind, 0) for kind in COMPILED} == dict.fromkeys(COMPILED, 0)
    used = {row["kind"]: row["used"] for row in warm["kinds"]}
    assert used["Triton kernels"] is None or used["Triton kernels"] >= 2
    assert warm["restored"]["artifact"] == cold["saved"]["artifact"]
