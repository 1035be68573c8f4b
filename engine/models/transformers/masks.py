"""Which mask a model asks `transformers` for: causal, causal with a window, or refused.

A mask comes as a function of positions. It is asked for some queries over all keys of a context,
and what it allows must be what the attention operator allows.
"""

from __future__ import annotations

from typing import Any

import torch

FURTHEST = 1 << 17
"""Positions at which a mask is asked, at most: a longer window is none."""


def window_of(function: Any, longest: int) -> int | None:
    """The window of a mask in tokens; 0 for a causal one without; None for any other mask.

    Args:
        function: of batch, head, query and key position, as `transformers` has them.
        longest: tokens of the longest sequence.
    """
    far = max(2, min(longest, FURTHEST))
    with torch.device("cpu"):  # whatever device the caller asks without data
        return _window_of(function, far)


def _window_of(function: Any, far: int) -> int | None:
    queries = torch.tensor([[0], [1], [far // 3], [far // 2], [far - 1]])
    keys = torch.arange(far)[None]
    zero = torch.zeros((), dtype=torch.int64)
    try:
        allowed = torch.as_tensor(function(zero, zero, queries, keys)).broadcast_to(5, far).bool()
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError):
        return None  # it asks for more than positions
    last = allowed[-1].nonzero()
    first = int(last[0]) if len(last) else far
    window = far - first if first else 0
    wanted = (keys <= queries) & (keys > queries - (window or far))
    return window if torch.equal(allowed, wanted) else None
