"""Peers that compile beside everything else, and are timed one at a time when their turn comes.

A compile takes minutes of processor time and seconds of the GPU, so that several may run at once; a
timing needs the GPU for itself. A held process leaves a file `ready` and waits for a file `go`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import HERE, ends_of

TIMING = 120
"""Seconds that the timings of one peer may take."""


@dataclass(frozen=True)
class Held:
    """A peer in a process of its own, compiling or waiting."""

    process: subprocess.Popen[str]
    folder: Path

    @classmethod
    def start(cls, folder: Path, words: Sequence[object], more: Mapping[str, str]) -> Held:
        """Begin; `words` are a script of this folder and its arguments."""
        folder.mkdir()
        script, *rest = map(str, words)
        command = [sys.executable, str(HERE / script), *rest, "--hold", str(folder)]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | dict(more),
            )
        return cls(process, folder)

    def wait(self, until: float) -> None:
        """Until it is ready or gone, or this moment of `time.monotonic` has passed."""
        while not self._ready and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)

    def measured(self) -> dict[str, Any]:
        """What it prints when it may time; `error` says why nothing."""
        if not self._ready:
            late = self.process.poll() is None
            self.stop()
            return {"error": "not compiled in time" if late else self._log()}
        (self.folder / "go").touch()
        try:
            out, _ = self.process.communicate(timeout=TIMING)
        except subprocess.TimeoutExpired:
            self.stop()
            return {"error": f"not timed within {TIMING} s"}
        if self.process.returncode:
            return {"error": self._log()}
        found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return found

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    @property
    def _ready(self) -> bool:
        return (self.folder / "ready").exists()

    def _log(self) -> str:
        return ends_of((self.folder / "log").read_text(errors="replace"))
