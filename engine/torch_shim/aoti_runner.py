"""The thin AOTInductor runner: the one private torch name that the run side needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch

RunPiece = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]

OUTSIDE = "an index is outside of its dimension"
"""What the error of a piece begins with whose check of an index failed (`index_checks`)."""


def open_piece(library: Path) -> RunPiece:
    """Load one AOTInductor library for the CPU and return its call.

    Args:
        library: the `.so`; a `.json` of the same stem beside it lists external ops.

    Returns:
        A callable that takes the piece's tensors in order and returns its outputs. The list
        that is passed stays untouched, so one list can be replayed.

    Source: `torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h`; the names are the
    same in torch 2.11 to 2.14.
    """
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    return cast(RunPiece, cast(Any, runner).run)
