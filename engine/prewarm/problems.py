"""What is wrong with a prewarm file: every mistake at once, each with its line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vcc.cache.errors import ConfigError

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, both from 1, and what."""

    line: int
    column: int
    text: str


class BrokenFile(ConfigError):
    """A prewarm file that cannot be used; nothing of it was built.

    Args:
        file: as the user named it.
        problems: at least one, in the order of the file.
    """

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file, self.problems = file, tuple(problems)
        count = len(self.problems)
        shown = [f"{file}:{one.line}:{one.column}: {one.text}" for one in self.problems]
        more = [f"and {count - MOST_SHOWN} more"] if count > MOST_SHOWN else []
        super().__init__(
            f"{file} has {count} mistake{'s' * (count != 1)}",
            "\n       ".join([*shown[:MOST_SHOWN], *more]),
            "docs/ci.md lists the fields of the file",
        )

    def as_dict(self) -> dict[str, object]:
        """With every mistake by itself."""
        return {**super().as_dict(), "problems": [asdict(one) for one in self.problems]}
