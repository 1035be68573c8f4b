"""A boot of a toy step with tables of ranges on the libcuda double."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from support.player_boot import boot
from support.step_tables import TOKENS, Step, toy_step
from vcc.engine.config.modes import GraphMode

RANGES = {"1-2": (1, 2), "3-64": (3, TOKENS), "4-4": (4, 4)}
SIZES = (1, 2, 4, 8)
"""Of the graphs: of the first range two, of the exact size one, of the second range one."""


def blobs_of(ranges: dict[str, tuple[int, int]] = RANGES, **changes: Step) -> dict[str, bytes]:
    tables = {name: toy_step(layers=2, tokens=sizes) for name, sizes in ranges.items()}
    return {f"table/step/{name}": step.data for name, step in (tables | changes).items()}


def listed(*names: str) -> dict[str, Any]:
    return {"ranges": [{"sizes": name} for name in names]}


def ranged(weights: Path, mode: GraphMode = GraphMode.NONE, **changes: Any) -> Any:
    """The boot of an artifact with three tables."""
    asked = boot(weights, **{"blobs": blobs_of(), "info": listed(*RANGES), "lengths": ()} | changes)
    compilation = replace(
        asked.settings.compilation, cuda_graph_mode=mode, capture_sizes=SIZES, compile_sizes=(4,)
    )
    return replace(asked, settings=replace(asked.settings, compilation=compilation))
