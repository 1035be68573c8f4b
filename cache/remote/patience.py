"""Patience: how long a remote is waited for, and how often it is asked again. All of it ends."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from vcc.cache.errors import RemoteError
from vcc.cache.remote.base import Passing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one task with a remote, such as the pull of an artifact.

    Args:
        connect_s: seconds until a connection stands.
        idle_s: seconds in which at least a byte must come.
        total_s: seconds for everything, waits included.
        attempts: how often one request is made.
        first_wait_s: seconds of the first wait, which doubles.
        longest_wait_s: seconds of one wait; a server that asks for more is not waited for.
    """

    connect_s: float = 10.0
    idle_s: float = 30.0
    total_s: float = 3600.0
    attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0


BY_HAND = Limits()
"""Of a command that a person or a job gave."""
ON_A_MISS = Limits(connect_s=3.0, idle_s=10.0, total_s=300.0, attempts=3, longest_wait_s=5.0)
"""Of a run that can compile instead."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of one task, and when it began."""

    limits: Limits
    begun: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds that are left, never negative."""
        return max(0.0, self.begun + self.limits.total_s - time.monotonic())

    def check(self, what: str) -> None:
        """Raise RemoteError when the time is used up."""
        if not self.left_s:
            raise RemoteError(
                f"{what} took too long",
                f"it was given up after {self.limits.total_s:.0f} s",
                "Try again: what has arrived is kept and not asked for again",
            )

    def ask(self, what: str, work: Callable[[], T]) -> T:
        """The answer of `work`, which is tried again while that can help.

        Raises:
            RemoteError: it failed for good, too often, or the time is up.
        """
        for attempt in range(1, self.limits.attempts + 1):
            self.check(what)
            try:
                return work()
            except Passing as error:
                wait = self._wait(attempt, error)
                if wait is None:
                    raise _given_up(error, attempt) from error
                time.sleep(wait)
        raise RemoteError(f"{what} was not tried")  # attempts is at least 1

    def _wait(self, attempt: int, error: Passing) -> float | None:
        """Seconds until the next attempt; None when there is none."""
        limits = self.limits
        grown = min(limits.longest_wait_s, limits.first_wait_s * 2 ** (attempt - 1))
        wait = grown * random.uniform(0.5, 1.0)  # many replicas start at once
        if error.after is not None:
            wait = max(wait, error.after)
        possible = attempt < limits.attempts and wait <= min(limits.longest_wait_s, self.left_s)
        return wait if possible else None


def _given_up(error: Passing, attempts: int) -> RemoteError:
    times = "once" if attempts == 1 else f"{attempts} times"
    why = f"{error.why}; tried {times}" if error.why else f"tried {times}"
    if error.after is not None:
        why += f"; it asks to wait {error.after:.0f} s"
    return RemoteError(error.what, why, error.hint)
