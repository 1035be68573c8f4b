"""Traced to Passed: the order table, and running the passes that the config switches on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vcc.cache.errors import CompileError, UsageError
from vcc.engine.config.types import PassConfig
from vcc.engine.passes.base import Pass
from vcc.engine.passes.dead_code import ELIMINATE_DEAD_CODE
from vcc.engine.passes.noops import ELIMINATE_NOOPS
from vcc.engine.types import Passed, PassReport, Traced

PASSES: tuple[Pass, ...] = (ELIMINATE_NOOPS, ELIMINATE_DEAD_CODE)
"""All passes in the order in which they run."""


def enabled(config: PassConfig, passes: Sequence[Pass] = PASSES) -> tuple[Pass, ...]:
    """The passes that the config switches on, in order."""
    for one in passes:
        if not isinstance(one, Pass):
            raise UsageError(
                f"{getattr(one, '__name__', one)!s} is not a pass",
                "it has no name and no version, so no key would cover it",
                "wrap the function: vcc.engine.passes.base.define(name, function)",
            )
    return tuple(one for one in passes if getattr(config, one.name))


def apply(
    traced: Traced, passes: Sequence[Pass], dump: Callable[[str, Traced], None] | None = None
) -> Passed:
    """Run the passes on a trace.

    Args:
        traced: rewritten in place.
        passes: in order.
        dump: told the name of each pass and the graph after it.

    Raises:
        CompileError: a pass raised or left a broken graph; names the pass.
    """
    reports = []
    for one in passes:
        try:
            outcome = one.rewrite(traced.graph)
            traced.graph.graph.lint()
            traced.graph.recompile()
        except Exception as error:
            raise CompileError(
                f"pass {one.name} failed",
                f"{type(error).__name__}: {error}",
                f"switch it off in pass_config: {one.name} = false",
            ) from error
        reports.append(PassReport(one.name, one.version, outcome.matches, outcome.refused))
        if dump is not None:
            dump(one.name, traced)
    return Passed(traced, tuple(reports))


def version_pairs(passes: Sequence[Pass]) -> tuple[tuple[str, str], ...]:
    """Labelled versions for keys and identities."""
    return tuple((f"pass.{one.name}", one.version) for one in passes)
