"""The pass context of a settled request."""

from __future__ import annotations

from vcc.engine.config.modes import Dtype
from vcc.engine.passes.base import MOST_TOKENS, PassContext
from vcc.engine.request import Settled


def context_of(settled: Settled) -> PassContext:
    """What passes may ask about a build; its token range is that of the whole step.

    The inputs of a factory's module are not tokens: its range is open, so no gate with a limit
    holds for it.
    """
    config = settled.resolved.config
    tokens = config.dynamic_shapes.tokens
    declared = settled.request.source.kind == "decoder" and tokens is not None
    return PassContext(
        config=config,
        target=settled.request.target,
        dtype=settled.model.dtype or Dtype.FP32,
        tokens=(tokens.min, tokens.max) if declared and tokens else (1, MOST_TOKENS),
        ops=settled.resolved.ops.enabled,
        parallel=settled.request.parallel,
    )
