"""Refusals of compile sizes and ranges that contradict the mode or the model."""

from __future__ import annotations

from collections.abc import Sequence

from vcc.cache.errors import ConfigError

from .modes import CompileMode
from .resolved import PlatformFacts
from .sizes import check_within


def check_ranged(
    sizes: Sequence[int], ends: Sequence[int], mode: CompileMode, facts: PlatformFacts
) -> None:
    """Refuse what no code could be made for.

    Args:
        sizes: exact sizes, ascending.
        ends: end points of ranges, ascending.
        mode: the compile mode.
        facts: the sizes that the model has.

    Raises:
        ConfigError: the mode has no code of ours, the model no size to make ranges of, or a value
            is outside of that size's range.
    """
    for field, values in (("compile_sizes", sizes), ("compile_ranges", ends)):
        if not values:
            continue
        if not mode.rewrites:
            raise ConfigError(
                f"{field} is given, but {mode.name} makes no code for ranges of sizes",
                f"{field} = {', '.join(map(str, values))}",
                "leave it out, or use --compile vcc",
            )
        if facts.unranged:
            raise ConfigError(
                f"{field} needs one size that varies",
                facts.unranged,
                "leave it out, or give dimensions of one size one name: --shape x=T@1-64x8",
            )
        _check_in_range(field, values, facts)


def _check_in_range(field: str, values: Sequence[int], facts: PlatformFacts) -> None:
    if facts.sizes is None:
        check_within(field, values, facts.max_num_batched_tokens)
        return
    low, high = facts.sizes.min, facts.sizes.max
    for value in values:
        if not low <= value <= high:
            raise ConfigError(
                f"{field} has {value}, outside of {low} to {high}",
                "no input of the module has that size",
                "declare a wider range or leave the value out",
            )
