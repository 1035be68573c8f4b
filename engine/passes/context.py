"""The pass context of a settled request."""

from __future__ import annotations

from vcc.engine.config.modes import Dtype
from vcc.engine.config.types import DimRange
from vcc.engine.passes.base import MOST_TOKENS, PassContext
from vcc.engine.request import Settled


def context_of(settled: Settled, sizes: DimRange | None = None) -> PassContext:
    """What passes may ask about a build.

    The inputs of a factory's module are not tokens unless ranges of them were asked for: its range
    is open, so no gate with a limit holds for it.

    Args:
        settled: the request.
        sizes: the range that the graph is compiled for; None: that of the whole step.
    """
    config = settled.resolved.config
    tokens = sizes or config.dynamic_shapes.tokens
    ranged = bool(config.compile_ranges or config.compile_sizes)
    declared = (settled.request.source.kind == "decoder" or ranged) and tokens is not None
    return PassContext(
        config=config,
        target=settled.request.target,
        dtype=settled.model.dtype or Dtype.FP32,
        tokens=(tokens.min, tokens.max) if declared and tokens else (1, MOST_TOKENS),
        ops=settled.resolved.ops.enabled,
        parallel=settled.request.parallel,
    )
