"""Which stored artifacts answer a request, and what is left to the boot.

Graph mode and sizes are no part of the code of a GPU artifact that was planned: its node table
holds a step of every size, and graphs are built from it at boot. So any such artifact answers
whatever mode and sizes its table allows; one that was made for them comes first. Recorded
artifacts, and those of the CPU, hold the steps that they were made for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vcc.cache.request import Entry
from vcc.engine.config.artifacts import Loader
from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.request import Settled, look_up
from vcc.engine.runtime.settings import Play

GRAPH_MODE, SIZES = "config.cuda_graph_mode", "config.capture_sizes"
_COMPILE_MODE, _CUTS, _TOKENS = (
    "config.mode",
    "config.splitting_ops",
    "model.max_num_batched_tokens",
)


def without_graphs(stated: Mapping[str, str]) -> dict[str, str]:
    """What is stated, apart from what a boot can decide."""
    return {label: value for label, value in stated.items() if label not in (GRAPH_MODE, SIZES)}


def answers(entry: Entry, stated: Mapping[str, str]) -> bool:
    """Whether an entry of the right base answers the stated open fields."""
    if not entry.differences(stated):
        return True
    return (
        is_planned(entry)
        and not entry.differences(without_graphs(stated))
        and _fits(entry.fields, stated)
    )


def is_planned(entry: Entry) -> bool:
    """Whether its node table serves every size."""
    loader, mode = dict(entry.host_rules).get("loader"), entry.fields.get(_COMPILE_MODE)
    return loader == Loader.PLAYER.value and mode == CompileMode.VCC_COMPILE.name


def play_of(settled: Settled) -> Play:
    """What the user said about graphs."""
    _, stated = look_up(settled)
    config = settled.resolved.config
    return Play(
        mode=config.cuda_graph_mode if GRAPH_MODE in stated else None,
        sizes=config.capture_sizes if SIZES in stated else None,
        usual=config.capture_sizes or (),
    )


def _fits(fields: Mapping[str, str], stated: Mapping[str, str]) -> bool:
    """Sizes must be steps of the table; pieces need one that is cut."""
    sizes: list[int] = json.loads(stated.get(SIZES, "[]"))
    mode = GraphMode(stated.get(GRAPH_MODE, GraphMode.NONE.value))
    cut = json.loads(fields.get(_CUTS, "[]"))
    in_pieces = mode.uses(GraphMode.PIECEWISE)
    return max(sizes, default=0) <= int(fields.get(_TOKENS, "0")) and bool(cut or not in_pieces)
