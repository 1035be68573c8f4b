"""What a pass is: a rewrite with a name, a version that covers its source, and when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType

from torch.fx import GraphModule

from vcc.cache.errors import UsageError
from vcc.engine.config.modes import Dtype
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, ParallelConfig, Scalar
from vcc.engine.passes.version import RULES, rule_version, version_of
from vcc.engine.types import Saved

MOST_TOKENS = 1 << 31
"""Upper end of a range that nobody declared: no gate with a limit holds for it."""


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a pass may ask beside the graph; two builds with equal answers get equal graphs.

    Attributes:
        config: the resolved configuration.
        target: what code is made for.
        dtype: element type of the model.
        tokens: range of tokens of a step that this graph is compiled for, both ends included.
        ops: custom ops that are switched on, by name (`rms_norm`).
        parallel: sizes of the parallel groups.
        parameters: the pass's own, which its version covers.
    """

    config: CompilationConfig = field(default_factory=CompilationConfig)
    target: Target = field(default_factory=lambda: Target.parse("cpu"))
    dtype: Dtype = Dtype.FP32
    tokens: tuple[int, int] = (1, MOST_TOKENS)
    ops: frozenset[str] = frozenset()
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gate:
    """Where a pass runs; an empty tuple allows everything.

    Args:
        min_tokens, max_tokens: the whole token range must lie between them, both included.
        targets: platforms (`cpu`, `cuda`) or architectures (`sm_90`, which covers `sm_90a`).
        dtypes: element types of the model.
    """

    min_tokens: int = 1
    max_tokens: int | None = None
    targets: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = ()

    def refusal(self, context: PassContext) -> str:
        """Why the pass does not run here; empty when it does."""
        low, high = context.tokens
        if low < self.min_tokens:
            return f"steps of {low} tokens are below its least of {self.min_tokens}"
        if self.max_tokens is not None and high > self.max_tokens:
            return f"steps of up to {high} tokens are above its limit of {self.max_tokens}"
        if self.targets and not any(_covers(one, context.target) for one in self.targets):
            return f"target {context.target} {_outside(self.targets)}"
        if self.dtypes and context.dtype not in self.dtypes:
            return f"dtype {context.dtype.value} {_outside([one.value for one in self.dtypes])}"
        return ""

    def __str__(self) -> str:
        least, most = self.min_tokens, self.max_tokens
        parts = [
            f"tokens {least} to {most or '…'}" if (least, most) != (1, None) else "",
            ", ".join(self.targets),
            ", ".join(one.value for one in self.dtypes),
        ]
        return " · ".join(part for part in parts if part) or "everywhere"


def _outside(names: Sequence[str]) -> str:
    return f"is not {names[0]}" if len(names) == 1 else f"is none of {', '.join(names)}"


def _covers(name: str, target: Target) -> bool:
    return name == target.platform.value or target.arch.rstrip("af") == name.rstrip("af")


NOTHING = Saved()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did.

    Attributes:
        matches: rewrites made.
        refused: near-matches that were left, each with the reason.
        saved: what a step moves and launches less.
    """

    matches: int
    refused: tuple[str, ...] = ()
    saved: Saved = NOTHING


Rewrite = Callable[[GraphModule, PassContext], Outcome]


@dataclass(frozen=True, slots=True)
class Pass:
    """A graph to an equal graph.

    The graph is rewritten in place: it belongs to the trace and nobody else holds it.

    Attributes:
        name: its switch in `PassConfig`, or what reports call a pass of the user's.
        rewrite: changes the graph and says what it did.
        version: covers source and parameters; it is in the code key.
        needs: operators (`ns::op`) that its result calls, at run time too; without one it is
            skipped.
        gate: where it runs.
        parameters: handed to the rewrite as `context.parameters`.
    """

    name: str
    rewrite: Rewrite
    version: str
    needs: tuple[str, ...] = ()
    gate: Gate = Gate()
    parameters: tuple[tuple[str, Scalar], ...] = ()


def define(
    name: str,
    rewrite: Rewrite,
    *,
    needs: Sequence[str] = (),
    gate: Gate = Gate(),
    parameters: Mapping[str, Scalar] | None = None,
    sources: Sequence[ModuleType] = (),
) -> Pass:
    """A pass of one's own; its version is the digest of its file, `sources` and parameters.

    Args:
        name: how reports and keys call it.
        rewrite: a function of a module; what it depends on beside the graph comes as parameters.
        needs, gate: see `Pass`.
        parameters: plain values.
        sources: further modules that the rewrite is made of.

    Raises:
        UsageError: the name is taken, or the version would not cover the rewrite.
    """
    if name in RULES or not name.isidentifier():
        why = "vcc has a pass of that name" if name in RULES else "it must be an identifier"
        raise UsageError(f'a pass cannot be called "{name}"', why, "choose another name")
    _check_covered(name, rewrite)
    files = [Path(inspect.getfile(rewrite)), *(Path(inspect.getfile(one)) for one in sources)]
    pairs = tuple(sorted((parameters or {}).items()))
    return Pass(name, rewrite, version_of(files, pairs), tuple(needs), gate, pairs)


def builtin(name: str, rewrite: Rewrite, *, needs: Sequence[str] = (), gate: Gate = Gate()) -> Pass:
    """One of our own passes; parameters and version are those of its row in `PASS_RULES`."""
    rule = RULES[name]
    return Pass(name, rewrite, rule_version(rule), tuple(needs), gate, rule.parameters)


def _check_covered(name: str, rewrite: object) -> None:
    if not isinstance(rewrite, FunctionType):
        why = f"the rewrite is a {type(rewrite).__name__}, whose values no digest covers"
    elif rewrite.__closure__:
        names = ", ".join(rewrite.__code__.co_freevars)
        why = f"the rewrite closes over {names}, which no digest covers"
    else:
        return
    raise UsageError(
        f"pass {name} would have no complete version",
        why,
        "make it a function of a module and hand values over as parameters={...}",
    )
