"""What a player got of the site's store of matrix products."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GemmReport:
    """Entries that the player got, and why there are none where there could be some.

    Attributes:
        entries, choices: what the store had for this artifact and device.
        lacking: whether recording would add to it.
        trouble: why it could not be read.
    """

    entries: int
    choices: int
    lacking: bool = False
    trouble: str = ""

    def __str__(self) -> str:
        if self.trouble:
            return f"the GEMM store is not used: {self.trouble}"
        return f"matrix products: {self.entries} from the GEMM store, {self.choices} choices"
