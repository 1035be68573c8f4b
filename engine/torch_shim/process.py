"""What a forked worker must change about itself before it touches torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch


def leave_parent_alone(log: Path) -> None:
    """Output to a log, one thread.

    One thread because OpenMP's pool does not survive a fork: a region of one thread needs none.
    """
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    torch.set_num_threads(1)


def end(code: int) -> None:
    """Leave a forked worker without running the parent's exit handlers."""
    os._exit(code)
