"""What becomes of a configuration when the traced graph calls none of its splitting ops."""

from __future__ import annotations

from dataclasses import replace

from .graph_mode import WITHOUT_PIECES
from .modes import GraphMode
from .resolved import Reason, shown
from .types import CompilationConfig

WHY = "no splitting op is called, so the graph is not cut and there are no pieces"


def without_cuts(config: CompilationConfig) -> tuple[CompilationConfig, tuple[Reason, ...]]:
    """A resolved configuration as the resolver would have left it, had it known the graph.

    Returns:
        The configuration that boots, and why it is another one; nothing where it is the same.
    """
    mode = config.cuda_graph_mode
    if mode not in WITHOUT_PIECES:
        return config, ()
    now = WITHOUT_PIECES[mode]
    reason = Reason("cuda_graph_mode", shown(mode), shown(now), WHY)
    changed = replace(config, cuda_graph_mode=now)
    if now is GraphMode.NONE:
        changed = replace(changed, capture_sizes=(), max_capture_size=0)
    return changed, (reason,)
