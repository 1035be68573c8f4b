"""What the resolver reads and returns: platform facts, reasons, the resolved configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .artifacts import ArtifactRule
from .custom_ops import OpChoices
from .levels import DEFAULT_LEVEL, LEVEL_TABLE, PassRule
from .modes import AttentionSupport, Backend, CompileMode, GraphMode, OptLevel, Platform
from .plain import canonical, plain
from .types import CompilationConfig, DimRange


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """What the resolver knows about the machine, the model and the step.

    Args:
        platform: where the step runs.
        max_num_seqs, max_num_batched_tokens: limits of a step.
        attention: weakest support of the model's attention layers.
        attention_ops: splitting ops that are attention; cutting at one means attention is split.
        decode_query_len: tokens of a sequence in uniform decode (above 1: speculation).
        known_ops: names of all custom ops.
        breakable_graphs: True when eager steps can be captured in segments.
        stepped: True for a decoder, whose steps are padded to capture sizes; the sizes of a plain
            module's inputs are what its callers give.
        sizes: range of the size that compile sizes and ranges are about; None: 1 to the budget.
        unranged: why there is no such size; empty where there is one.
        max_loras: adapters that a step can hold; 0 where they are not enabled.
    """

    platform: Platform
    max_num_seqs: int
    max_num_batched_tokens: int
    attention: AttentionSupport = AttentionSupport.ALWAYS
    attention_ops: tuple[str, ...] = ("vcc::paged_attention",)
    decode_query_len: int = 1
    known_ops: tuple[str, ...] = ()
    breakable_graphs: bool = False
    stepped: bool = True
    sizes: DimRange | None = None
    unranged: str = ""
    max_loras: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    """One field that resolution set or changed; `was` is "unset" when the user left it open."""

    field: str
    was: str
    now: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.was} → {self.now} ({self.why})"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration without unset fields, how it came about, and what it makes.

    Resolving `config` again under the same facts changes nothing.
    """

    config: CompilationConfig
    reasons: tuple[Reason, ...]
    ops: OpChoices
    artifact: ArtifactRule

    def why(self, field: str) -> tuple[str, ...]:
        """The reasons recorded for one field, in order."""
        return tuple(one.why for one in self.reasons if one.field == field)


@dataclass(frozen=True, slots=True)
class State:
    """The configuration so far; every step returns a new one."""

    asked: CompilationConfig
    config: CompilationConfig
    facts: PlatformFacts
    passes: tuple[PassRule, ...]
    reasons: tuple[Reason, ...] = ()

    @property
    def level(self) -> OptLevel:
        """The level in force."""
        return DEFAULT_LEVEL if self.config.level is None else self.config.level

    @property
    def mode(self) -> CompileMode:
        """The compile mode in force; the level's until it is filled."""
        return LEVEL_TABLE[self.level].mode if self.config.mode is None else self.config.mode

    @property
    def backend(self) -> Backend:
        """The back end in force."""
        return self.config.backend or Backend.INDUCTOR

    @property
    def graphs(self) -> GraphMode:
        """The graph mode in force; the level's until it is filled."""
        return self.config.cuda_graph_mode or LEVEL_TABLE[self.level].graphs

    @property
    def breakable(self) -> bool:
        """True when eager steps are captured in segments: only where somebody asks for that.

        Each graph costs a step at boot, which eager runs have none of otherwise.
        """
        asked = self.asked.cuda_graph_mode
        wanted = asked is not None and asked.uses(GraphMode.PIECEWISE)
        eager = self.mode is CompileMode.NO_COMPILATION
        return wanted and eager and self.facts.breakable_graphs

    def put(self, field: str, value: Any, why: str) -> State:
        """Set a field and say why; nothing is recorded when the value stays."""
        old = getattr(self.config, field)
        if old == value:
            return self
        reason = Reason(field, shown(old), shown(value), why)
        changed = replace(self.config, **{field: value})
        return replace(self, config=changed, reasons=(*self.reasons, reason))

    def fill(self, field: str, value: Any, why: str) -> State:
        """Set a field that is still unset."""
        return self.put(field, value, why) if getattr(self.config, field) is None else self


def shown(value: Any) -> str:
    """A value as `Reason` shows it."""
    if value is None:
        return "unset"
    text = plain(value)
    return text if isinstance(text, str) else canonical(text)
