"""Code of an artifact by the size of a step: which of several a step takes, and saying so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from vcc.cache.errors import IntegrityError
from vcc.engine.runtime.descriptors import Dispatch


class Ranged(Protocol):
    """Code for the sizes from `low` to `high`, both included."""

    @property
    def low(self) -> int:
        """Smallest size."""

    @property
    def high(self) -> int:
        """Largest size."""


Code = TypeVar("Code", bound=Ranged)


def chosen(codes: Sequence[Code], size: int) -> Code:
    """The code for a size: of this size alone before that of a range.

    Raises:
        IntegrityError: there is none.
    """
    fit = [one for one in codes if one.low <= size <= one.high]
    if not fit:
        raise IntegrityError(
            f"the artifact has no code for a size of {size}",
            f"it has {', '.join(f'{one.low} to {one.high}' for one in codes)}",
            "rebuild it: vcc compile",
        )
    return min(fit, key=lambda one: one.high - one.low)


def with_code(decision: Dispatch, code: Ranged, codes: Sequence[Ranged]) -> Dispatch:
    """A decision whose reason names the code that the step took, where there are several.

    Args:
        decision: of the dispatcher.
        code: what the step took.
        codes: what there was.
    """
    if len(codes) < 2:
        return decision
    sizes = f"{code.low}" if code.low == code.high else f"{code.low} to {code.high}"
    return replace(decision, reason=f"{decision.reason}; code for {sizes} tokens")
