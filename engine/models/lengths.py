"""Lengths of a sequence that a model was made for, of a source in any state. Torch-free.

A look-up settles the length of a source, and a build settles the same request once more: what is
asked here is answered from the model's configuration, as if nothing were settled.
"""

from __future__ import annotations

from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.source import Source

DEFAULT_POSITIONS = 2048
"""Positions of a model whose config does not say."""


def usual_length(source: Source) -> int:
    """Tokens of a sequence where nobody says; 0 where the config's positions are it."""
    return _spec(source).usual_length if source.kind == "decoder" else 0


def computes_by_length(source: Source) -> bool:
    """Whether the longest sequence decides what is computed for short ones (`longrope`)."""
    return source.kind == "decoder" and any(one.kind == "longrope" for one in _spec(source).ropes)


def positions_of(source: Source) -> int:
    """Most positions that the model was made for (`max_position_embeddings`), in tokens."""
    found = source.config.get("max_position_embeddings")
    if source.kind == "decoder" and found is None:  # under another name, or left out
        return source.spec.max_positions
    return found if isinstance(found, int) and found > 0 else DEFAULT_POSITIONS


def _spec(source: Source) -> DecoderSpec:
    return source.for_length(0).spec
