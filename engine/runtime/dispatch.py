"""Which graph a step runs in: one total, pure function from a batch to mode, padding and reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from vcc.cache.errors import ConfigError, GraphError
from vcc.engine.config.modes import GraphMode
from vcc.engine.config.sizes import check_compile_sizes, check_multiples, padded_size
from vcc.engine.config.types import CompilationConfig

from .descriptors import NO_HINTS, NO_LORAS, AttentionHints, BatchDescriptor, Dispatch, lora_counts

__all__ = [
    "NO_HINTS",
    "NO_LORAS",
    "ORDER",
    "AttentionHints",
    "BatchDescriptor",
    "Dispatch",
    "Dispatcher",
    "dispatcher_of",
    "lora_counts",
]

ORDER = (GraphMode.FULL, GraphMode.PIECEWISE, GraphMode.NONE)
"""Plain modes in the order they are tried."""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """The captured shapes of one booted model. Make it with `build` or `unbuilt`."""

    mode: GraphMode
    sizes: tuple[int, ...]
    max_seqs: int
    query_len: int
    lora_cases: tuple[int, ...]
    longest_sequence: int
    built: bool
    _keys: dict[GraphMode, frozenset[BatchDescriptor]] = field(repr=False, compare=False)

    @classmethod
    def build(
        cls,
        mode: GraphMode,
        sizes: Sequence[int],
        *,
        max_seqs: int,
        query_len: int = 1,
        lora_cases: Sequence[int] = NO_LORAS,
        longest_sequence: int = 0,
        pieces: bool = True,
        compile_sizes: Sequence[int] = (),
    ) -> Dispatcher:
        """A dispatcher with its keys.

        Args:
            mode: the resolved graph mode, plain or composite.
            sizes: captured token counts, any order.
            max_seqs: most sequences in a step.
            query_len: tokens of a sequence in uniform decode.
            lora_cases: counts of active LoRAs with graphs of their own; see `lora_counts`.
            longest_sequence: longest sequence the FULL graphs serve, in tokens; 0: any.
            pieces: False when there is nothing to make PIECEWISE graphs of.
            compile_sizes: exact sizes compiled; none may be padded to another.

        Raises:
            ConfigError: PIECEWISE without pieces, a size that is no multiple of the query length
                where decode has graphs of its own, a compile size that is always padded, a size
                below 1.
        """
        ordered = tuple(sorted(set(sizes))) if mode is not GraphMode.NONE else ()
        if mode.uses(GraphMode.PIECEWISE) and not pieces:
            raise ConfigError(
                f"graph mode {mode.value} needs pieces and there are none",
                "the graph is not cut and eager graphs cannot be broken up",
                "use compile mode VCC_COMPILE with splitting ops, or graph mode full or none",
            )
        if ordered and ordered[0] < 1:
            raise ConfigError(f"capture size {ordered[0]} must be at least 1")
        check_multiples(ordered, mode, query_len)
        check_compile_sizes(compile_sizes, ordered, mode)
        cases = tuple(sorted(set(lora_cases))) or NO_LORAS
        keys = _keys(mode, ordered, max_seqs, query_len, cases)
        return cls(mode, ordered, max_seqs, query_len, cases, longest_sequence, True, keys)

    @classmethod
    def unbuilt(cls, mode: GraphMode) -> Dispatcher:
        """A dispatcher before its graphs exist: every step runs in NONE."""
        return cls(mode, (), 1, 1, NO_LORAS, 0, False, {})

    def keys(self, mode: GraphMode) -> frozenset[BatchDescriptor]:
        """The captured descriptors of a plain mode."""
        return self._keys.get(mode, frozenset())

    def capture_list(self) -> tuple[tuple[GraphMode, BatchDescriptor], ...]:
        """What to capture, in order: PIECEWISE before FULL, each largest first.

        The memory of a large graph is reused by the smaller ones after it.
        """
        return tuple(
            (mode, key)
            for mode in (GraphMode.PIECEWISE, GraphMode.FULL)
            for key in sorted(self.keys(mode), key=lambda k: (-k.tokens, -k.loras))
        )

    def dispatch(
        self,
        tokens: int,
        uniform: bool,
        *,
        loras: int = 0,
        attention: AttentionHints = NO_HINTS,
        allow: Collection[GraphMode] = ORDER,
    ) -> Dispatch:
        """Decide one step.

        Args:
            tokens: raw rows of the step.
            uniform: True when every sequence has exactly `query_len` tokens.
            loras: number of active LoRAs.
            attention: what the attention metadata says.
            allow: plain modes the caller accepts.

        Returns:
            FULL before PIECEWISE before NONE. NONE has the raw size; the others are padded.

        Raises:
            GraphError: no allowed mode has a graph for this step and NONE is not allowed.
        """
        refusals: list[str] = []
        for mode in ORDER[:2]:
            key, why = self._find(mode, tokens, uniform, loras, attention, allow)
            if key is not None:
                return Dispatch(mode, key, "; ".join((why, *refusals)))
            if why:
                refusals.append(f"not {mode.value}: {why}")
        refusals = refusals or [f"graph mode {self.mode.value} has no graphs"]
        if GraphMode.NONE not in allow:
            allowed = ", ".join(mode.value for mode in ORDER if mode in allow) or "none at all"
            raise GraphError(
                f"no graph for a step of {tokens} tokens",
                f"allowed: {allowed}; graph mode {self.mode.value}; {'; '.join(refusals)}",
                "allow NONE, or capture a size that holds this step",
            )
        return Dispatch(GraphMode.NONE, BatchDescriptor(tokens), "; ".join(refusals))

    def _find(
        self,
        mode: GraphMode,
        tokens: int,
        uniform: bool,
        loras: int,
        attention: AttentionHints,
        allow: Collection[GraphMode],
    ) -> tuple[BatchDescriptor | None, str]:
        """The key for a mode and why, or None and why not (empty: the mode has no such graphs)."""
        if not self.mode.uses(mode):
            return None, ""
        if mode not in allow:
            return None, "the caller does not allow it"
        if not self.built:
            return None, "graphs are not built yet"
        separate = mode is GraphMode.FULL and self.mode.separates_decode
        if why := self._inadmissible(mode, separate, tokens, uniform, attention):
            return None, why
        size, case = padded_size(tokens, self.sizes), padded_size(loras, self.lora_cases)
        if size is None:
            return None, f"{tokens} tokens are above the largest size {max(self.sizes, default=0)}"
        if case is None:
            return None, f"{loras} LoRAs are above the largest case {self.lora_cases[-1]}"
        key = _descriptor(mode, separate, size, self.max_seqs, self.query_len, case)
        if key not in self.keys(mode):
            return None, f"size {size} holds more than {self.max_seqs} sequences"
        return key, _padding(tokens, size, loras, case)

    def _inadmissible(
        self, mode: GraphMode, separate: bool, tokens: int, uniform: bool, hints: AttentionHints
    ) -> str:
        """Why a step cannot be in a graph of this mode, whatever its size; empty when it can."""
        if tokens < 1:
            return "the step has no tokens"
        if separate and not uniform:
            return "the step is not uniform decode"
        if separate and tokens % self.query_len:
            return f"{tokens} tokens are not whole sequences of {self.query_len}"
        return self._attention_refusal(hints) if mode is GraphMode.FULL else ""

    def _attention_refusal(self, hints: AttentionHints) -> str:
        if hints.cascade:
            return "cascade attention chooses its kernels per step"
        if hints.shared_prefix:
            return "shared-prefix attention chooses its kernels per step"
        if 0 < self.longest_sequence < hints.longest_sequence:
            return (
                f"a sequence of {hints.longest_sequence} tokens is beyond the captured "
                f"{self.longest_sequence}"
            )
        return ""


def dispatcher_of(
    config: CompilationConfig,
    *,
    max_seqs: int,
    lora_cases: Sequence[int] = NO_LORAS,
    breakable: bool = False,
) -> Dispatcher:
    """The dispatcher of a resolved configuration; errors as in `Dispatcher.build`."""
    cuts = config.mode is not None and config.mode.has_pieces and bool(config.splitting_ops)
    return Dispatcher.build(
        config.cuda_graph_mode or GraphMode.NONE,
        config.capture_sizes or (),
        max_seqs=max_seqs,
        lora_cases=lora_cases,
        pieces=cuts or breakable,
        compile_sizes=config.compile_sizes or (),
    )


def _keys(
    mode: GraphMode, sizes: Sequence[int], max_seqs: int, query_len: int, cases: Sequence[int]
) -> dict[GraphMode, frozenset[BatchDescriptor]]:
    separate = mode.separates_decode
    # A uniform decode graph larger than every sequence can fill would never run.
    full = [size for size in sizes if not separate or size <= max_seqs * query_len]
    wanted = ((GraphMode.FULL, full, separate), (GraphMode.PIECEWISE, sizes, False))
    return {
        plain: frozenset(
            _descriptor(plain, apart, size, max_seqs, query_len, case)
            for size in chosen
            for case in cases
        )
        for plain, chosen, apart in wanted
        if mode.uses(plain)
    }


def _descriptor(
    mode: GraphMode, separate: bool, size: int, max_seqs: int, query_len: int, case: int
) -> BatchDescriptor:
    if mode is GraphMode.PIECEWISE:
        return BatchDescriptor(size, None, False, case)
    if separate:
        return BatchDescriptor(size, size // query_len, True, case)
    return BatchDescriptor(size, min(size, max_seqs), False, case)


def _padding(tokens: int, size: int, loras: int, case: int) -> str:
    why = "exact size" if tokens == size else f"{tokens} tokens padded to {size}"
    return why if loras == case else f"{why}, {loras} LoRAs to case {case}"
