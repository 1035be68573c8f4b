"""What a player gets of the site's store of matrix products."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GemmReport:
    """Entries that a player is offered, and why there are none where there could be some.

    Attributes:
        entries, choices: what the store has for this artifact and device.
        used: entries that some step takes; the others lost to a kernel of the artifact.
        lacking: whether recording would add to it.
        trouble: why it, or a part of it, is not used.
    """

    entries: int
    choices: int
    used: int = 0
    lacking: bool = False
    trouble: str = ""

    def __str__(self) -> str:
        said = f"the GEMM store is not used: {self.trouble}" if self.trouble else ""
        if said and not self.entries:
            return said
        found = (
            f"matrix products: {self.entries} from the GEMM store, {self.choices} choices, "
            f"{self.used} used"
        )
        return f"{found}; not all of them: {self.trouble}" if self.trouble else found
