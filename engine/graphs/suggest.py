"""Capture sizes for the steps that were seen: the ones that leave the least padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Capture sizes, ascending, and what they would have cost.

    Attributes:
        sizes: token counts; the largest step seen is the last.
        raw_tokens, padded_tokens: sums over the steps with these sizes.
    """

    sizes: tuple[int, ...]
    raw_tokens: int
    padded_tokens: int

    @property
    def padding(self) -> float:
        """Share of computed rows that are padding, 0 to 1."""
        spare = self.padded_tokens - self.raw_tokens
        return spare / self.padded_tokens if self.padded_tokens else 0.0


def suggest(steps: Mapping[int, int], graphs: int) -> Suggestion:
    """The at most `graphs` sizes with the fewest rows of padding over all steps.

    Every step is padded to the next size, so an optimal size is one that was seen; which of them
    is found by dynamic programming over the seen sizes in order.

    Args:
        steps: raw tokens of a step -> how many steps had them.
        graphs: most sizes.
    """
    seen = np.array(sorted(size for size, count in steps.items() if size > 0 and count), np.int64)
    if not len(seen) or graphs < 1:
        return Suggestion((), 0, 0)
    counts = np.array([steps[int(size)] for size in seen], np.int64)
    many = np.concatenate([[0], np.cumsum(counts)])
    raw = int((seen * counts).sum())
    rows, cuts = _best_rows(seen, many, min(graphs, len(seen)))
    return Suggestion(_sizes(seen, cuts), raw, rows)


def _best_rows(
    seen: np.ndarray[tuple[int], np.dtype[np.int64]],
    many: np.ndarray[tuple[int], np.dtype[np.int64]],
    graphs: int,
) -> tuple[int, list[np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    """Computed rows with the best sizes, and for each size where the steps below it begin.

    `best[i]` are the rows of the first i sizes when the last graph has size i - 1; adding a graph
    splits those at k: the steps k .. i - 1 run in a graph of their largest.
    """
    best = np.concatenate([[0], seen * many[1:]])
    cuts = [np.zeros(len(seen) + 1, np.int64)]
    for _ in range(graphs - 1):
        after, cut = best.copy(), np.zeros(len(seen) + 1, np.int64)
        for i in range(1, len(seen) + 1):
            rows = best[:i] + seen[i - 1] * (many[i] - many[:i])
            cut[i] = int(rows.argmin())
            after[i] = rows[cut[i]]
        best = after
        cuts.append(cut)
    return int(best[-1]), cuts


def _sizes(
    seen: np.ndarray[tuple[int], np.dtype[np.int64]],
    cuts: list[np.ndarray[tuple[int], np.dtype[np.int64]]],
) -> tuple[int, ...]:
    at, found = len(seen), list[int]()
    for cut in reversed(cuts):
        if at:
            found.append(int(seen[at - 1]))
            at = int(cut[at])
    return tuple(reversed(found))
