"""An environment in which torch is not installed: what this one has, without torch and Triton."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

LEFT_OUT = ("torch", "torchgen", "functorch", "triton", "nvidia", "pytorch")
ROOT = Path(__file__).parents[2]

ENTRY = "from vcc.cli.main import main; main()"
# Path files are not read in the child, so an editable install is found by its own module.
HEAD = """
import importlib.util, sys
sys.path[:0] = {places!r}
if importlib.util.find_spec("_editable_skbc_vcc"):
    import _editable_skbc_vcc
"""


def without_torch(folder: Path) -> Path:
    """Fill `folder` with links to everything installed but torch, Triton and their metadata."""
    folder.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            name = entry.name.partition("-")[0].partition(".")[0].lower()
            link = folder / entry.name
            if name.partition("_")[0] not in LEFT_OUT and not link.exists():
                link.symlink_to(entry)
    return folder


def run(
    packages: Path, *words: object, code: str = ENTRY, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run vcc, or lines of Python, where torch is not installed.

    Args:
        packages: of `without_torch`.
        words: the arguments.
        code: what is run; the tests' `support` can be imported.
        environment: laid over that of this process.
    """
    head = HEAD.format(places=[str(packages), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", head + code, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )
