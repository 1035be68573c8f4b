"""The rules that bring a graph mode in line with pieces and attention support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vcc.cache.errors import ConfigError

from .modes import AttentionSupport, GraphMode


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """What graph modes depend on.

    Args:
        attention: weakest support of the attention layers.
        query_len: tokens of a sequence in uniform decode.
        pieces: True when there are pieces to make PIECEWISE graphs of.
        attention_split: True when the pieces are cut at attention.
        uncut: why there are no pieces.
    """

    attention: AttentionSupport
    query_len: int
    pieces: bool
    attention_split: bool
    uncut: str = "there are no pieces: the graph is not cut"

    @property
    def decode_full(self) -> bool:
        """True when attention can take a uniform decode step inside one graph."""
        needed = (
            AttentionSupport.UNIFORM_SINGLE_TOKEN_DECODE
            if self.query_len == 1
            else AttentionSupport.UNIFORM_BATCH
        )
        return self.attention >= needed


WITHOUT_PIECES = {
    GraphMode.PIECEWISE: GraphMode.NONE,
    GraphMode.FULL_AND_PIECEWISE: GraphMode.FULL,
}


def settle_graph_mode(mode: GraphMode, facts: GraphFacts) -> Iterator[tuple[GraphMode, str]]:
    """The steps from the wished mode to one that holds: each new mode with its reason."""
    if not facts.pieces and mode in WITHOUT_PIECES:
        mode = WITHOUT_PIECES[mode]
        yield mode, facts.uncut
    if mode is GraphMode.FULL and facts.attention is not AttentionSupport.ALWAYS:
        split = facts.attention_split and facts.pieces
        mode = GraphMode.FULL_AND_PIECEWISE if split else GraphMode.FULL_DECODE_ONLY
        yield mode, f"attention supports {facts.attention.name}, full mixed steps need ALWAYS"
    if mode.decode_part is GraphMode.FULL and not facts.decode_full:
        mode = GraphMode.PIECEWISE if facts.pieces else GraphMode.NONE
        yield mode, _no_full_decode(facts)
    check_graph_mode(mode, facts)


def _no_full_decode(facts: GraphFacts) -> str:
    steps = "decode steps" if facts.query_len == 1 else f"decode of {facts.query_len} tokens"
    return f"attention supports {facts.attention.name}, not enough for full {steps}"


def check_graph_mode(mode: GraphMode, facts: GraphFacts) -> None:
    """Refuse a mode that the attention back end at hand cannot serve.

    Boot calls this too: an artifact's mode was settled on the machine that built it.

    Raises:
        ConfigError: FULL decode or FULL mixed steps without the support they need.
    """
    mixed = mode.mixed_part is GraphMode.FULL and facts.attention is not AttentionSupport.ALWAYS
    if mixed or (mode.decode_part is GraphMode.FULL and not facts.decode_full):
        raise ConfigError(
            f"graph mode {mode.value} does not work with this attention back end",
            f"it supports {facts.attention.name}"
            + (f" and decode has {facts.query_len} tokens" if facts.query_len > 1 else ""),
            "use graph mode piecewise or none",
        )
