"""Capture sizes, exact compile sizes and compile ranges: defaults, limits and refusals."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from vcc.cache.errors import ConfigError

from .modes import GraphMode
from .types import DimRange

LARGEST_DEFAULT = 512
"""Default capture sizes never go above this many tokens."""


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """What bounds capture sizes.

    Args:
        max_seqs: most sequences in a step.
        token_budget: most tokens in a step.
        query_len: tokens of one sequence in a uniform decode step (above 1: speculation).
    """

    max_seqs: int
    token_budget: int
    query_len: int = 1

    def default_largest(self) -> int:
        """min(2 x sequences x query length, 512), never above the budget."""
        return min(2 * self.max_seqs * self.query_len, LARGEST_DEFAULT, self.token_budget)


def default_sizes(largest: int) -> tuple[int, ...]:
    """1, 2, 4, then every 8 below 256, then every 16, none above `largest`."""
    ladder = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return tuple(size for size in ladder if size <= largest)


def multiples(sizes: Sequence[int], step: int, largest: int) -> tuple[int, ...]:
    """Sizes rounded up to multiples of `step`, de-duplicated, none above `largest`."""
    rounded = {-(-size // step) * step for size in sizes}
    return tuple(sorted(size for size in rounded if size <= largest))


def choose_capture_sizes(
    asked: Sequence[int] | None, asked_max: int | None, mode: GraphMode, limits: CaptureLimits
) -> tuple[tuple[int, ...], str]:
    """The capture sizes, ascending without repeats, and the reason (row M6).

    Raises:
        ConfigError: none left with graphs on; the explicit maximum is not the largest size; a
            size that is no multiple of the decode query length where decode has FULL graphs.
    """
    if asked is None:
        return _defaults(asked_max, mode, limits)
    wanted = tuple(sorted(set(asked)))
    if asked_max is not None and (not wanted or wanted[-1] != asked_max):
        largest = wanted[-1] if wanted else "none"
        raise ConfigError(
            f"max_capture_size {asked_max} is not the largest of capture_sizes ({largest})",
            "both were given",
            "leave out max_capture_size",
        )
    sizes = tuple(size for size in wanted if size <= limits.token_budget)
    _check_some(sizes, wanted, limits)
    check_multiples(sizes, mode, limits.query_len)
    dropped = [str(size) for size in wanted if size not in sizes]
    if dropped:
        return sizes, f"{', '.join(dropped)} above the token budget of {limits.token_budget}"
    return sizes, "sorted, each once" if wanted != tuple(asked) else "as given"


def _defaults(
    asked_max: int | None, mode: GraphMode, limits: CaptureLimits
) -> tuple[tuple[int, ...], str]:
    largest = limits.default_largest() if asked_max is None else asked_max
    sizes = default_sizes(min(largest, limits.token_budget))
    why = f"default sizes up to {largest}"
    if mode.separates_decode and limits.query_len > 1:
        sizes = multiples(sizes, limits.query_len, min(largest, limits.token_budget))
        why += f", multiples of the decode query length {limits.query_len}"
    if largest > limits.token_budget:
        why += f", none above the token budget of {limits.token_budget}"
    _check_some(sizes, (largest,), limits)
    return sizes, why


def _check_some(sizes: Sequence[int], wanted: Sequence[int], limits: CaptureLimits) -> None:
    if sizes:
        return
    above = bool(wanted) and min(wanted) > limits.token_budget
    raise ConfigError(
        "no capture size is left, but graphs are on",
        f"all are above the token budget of {limits.token_budget}"
        if above
        else "the list is empty",
        'give sizes such as [1, 2, 4, 8], or switch graphs off with "cuda_graph_mode": "none"',
    )


def check_multiples(sizes: Sequence[int], mode: GraphMode, query_len: int) -> None:
    """Refuse sizes that uniform decode cannot fill with whole sequences.

    Raises:
        ConfigError: decode has FULL graphs of its own and a size is no multiple of `query_len`.
    """
    odd = [size for size in sizes if size % query_len]
    if odd and mode.separates_decode:
        raise ConfigError(
            f"capture size {odd[0]} is not a multiple of the decode query length {query_len}",
            "a uniform decode step holds whole sequences",
            f"use {', '.join(map(str, multiples(sizes, query_len, max(sizes) + query_len)))}",
        )


def padded_size(tokens: int, sizes: Sequence[int]) -> int | None:
    """The smallest of the ascending `sizes` that holds `tokens`; None above the largest."""
    place = bisect.bisect_left(sizes, tokens)
    return sizes[place] if place < len(sizes) else None


def check_compile_sizes(
    compile_sizes: Sequence[int], sizes: Sequence[int], mode: GraphMode
) -> None:
    """Refuse exact compile sizes that padding would never call.

    Raises:
        ConfigError: graphs are on and a compile size is padded to another size.
    """
    if mode is GraphMode.NONE:
        return
    for size in compile_sizes:
        padded = padded_size(size, sizes)
        if padded not in (None, size):
            raise ConfigError(
                f"compile size {size} is never run: it is padded {size} → {padded}",
                "with graphs on, steps are padded to the capture sizes",
                f"add {size} to capture_sizes or compile {padded} instead",
            )


def check_within(field: str, values: Sequence[int], budget: int) -> None:
    """Refuse values above the token budget.

    Raises:
        ConfigError: the first such value is named.
    """
    for value in values:
        if value > budget:
            raise ConfigError(
                f"{field} has {value}, above the token budget of {budget}",
                "no step is that large",
                "raise max_num_batched_tokens or leave the value out",
            )


def token_ranges(
    end_points: Sequence[int], exact: Sequence[int], tokens: DimRange
) -> tuple[DimRange, ...]:
    """The ranges each piece is compiled for: ranges first, then exact sizes (row P9).

    >>> [(r.min, r.max) for r in token_ranges((8, 32), (16,), DimRange(1, 100))]
    [(1, 8), (9, 32), (33, 100), (16, 16)]
    """
    inner = sorted({end for end in end_points if tokens.min <= end < tokens.max})
    starts = (tokens.min, *(end + 1 for end in inner))
    ranges = [DimRange(a, b) for a, b in zip(starts, (*inner, tokens.max), strict=True)]
    known = {(one.min, one.max) for one in ranges}
    singles = [DimRange(n, n) for n in sorted(set(exact)) if (n, n) not in known]
    return (*ranges, *singles)
