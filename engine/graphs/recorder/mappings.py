"""What a process has mapped, as /proc tells it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OWN = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class Mapping:
    """[start, end) of a process, with modes and what it is of."""

    start: int
    end: int
    name: str

    @classmethod
    def parse(cls, line: str) -> Mapping:
        """A line of /proc/PID/maps."""
        span, modes, *rest = line.split(maxsplit=5)
        start, end = (int(edge, 16) for edge in span.split("-"))
        return cls(start, end, f"{modes} {' '.join(rest[3:]) or 'of no file'}")

    def holds(self, value: int) -> bool:
        """Whether an address lies in it."""
        return self.start <= value < self.end

    def meets(self, start: int, end: int) -> bool:
        """Whether it has addresses in common with [start, end)."""
        return self.start < end and start < self.end


def read_mappings(file: Path = OWN) -> tuple[Mapping, ...]:
    """All of a process, ascending; of this one, or as another left them in a file."""
    lines = file.read_text(errors="replace").splitlines()
    return tuple(Mapping.parse(line) for line in lines)
