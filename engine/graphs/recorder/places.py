"""Where the regions of the three captures lay, and what numbers that moved with them may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcc.engine.graphs.recorder.addresses import NAMES
from vcc.engine.graphs.recorder.known import Known

HALF = 1 << 32
"""Below are no addresses of a device; halves of addresses are."""

LOW = 1 << 44
"""Mappings below, which a driver has, are no reason to take a number for a half of an address: the
upper halves of what lies there are as small as counts and sizes."""

BYTE = 1 << 8

ALIGNED = 16
"""Addresses of tensors are multiples of it."""

LARGEST_REMAINDER = 1 << 16
"""Code looks at addresses modulo alignments of up to that many bytes."""


@dataclass(frozen=True, slots=True)
class Move:
    """A region of `size` bytes and where it lay in the captures; `region` is its index."""

    region: int
    first: int
    second: int
    size: int

    @property
    def spans(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """[start, end) at both places."""
        return (self.first, self.first + self.size), (self.second, self.second + self.size)


@dataclass(frozen=True, slots=True)
class Places:
    """The regions, and what each capture knew of other addresses."""

    moves: Sequence[Move]
    known: tuple[Known, Known, Known] = (Known(), Known(), Known())

    def in_region(self, value: int) -> bool:
        """Whether an address lies in a region at either place."""
        for one in self.moves:  # of every word of a recording
            if 0 <= value - one.first < one.size or 0 <= value - one.second < one.size:
                return True
        return False

    def is_ours(self, capture: int, value: int) -> bool:
        """Whether an address lies in a region, or where one was reserved in that capture."""
        return self.in_region(value) or self.known[capture].is_reserved(value)

    def pointer(self, first: int, second: int) -> tuple[int, int] | None:
        """The region, and the offset in it, that lay at these addresses in the two places.

        Its end counts, where a kernel may stop: nothing else begins there.
        """
        for move in self.moves:
            offset = first - move.first
            if 0 <= offset <= move.size and second - move.second == offset:
                return move.region, offset
        return None

    def is_half(self, first: int, second: int) -> bool:
        """Whether numbers of four bytes at the two places are what is left of addresses.

        They are if they are the lower halves of one place in a region, or upper halves of what lies
        in and beside the regions, but for what a number of one byte was written over. A number that
        code makes of an address is a remainder, so that those which do not differ in one are none.
        """
        upper = (self._is_upper(0, first), self._is_upper(1, second))
        return (
            all(upper) or (first ^ second) % LARGEST_REMAINDER == 0 or self._is_low(first, second)
        )

    def is_left(self, first: int, second: int) -> bool:
        """Whether words of eight bytes at the two places may be what is left of addresses.

        They are if each lies where something was mapped, or if what they differ in are halves of
        addresses. A half that is the same may be a number that was written over the other one.
        Words that differ in both halves and fill more than remainders would are addresses that
        nobody told of, or made of some as no code hands them to a kernel.
        """
        if self._is_mapped(0, first) and self._is_mapped(1, second):
            return True
        pairs = ((first // HALF, second // HALF), (first % HALF, second % HALF))
        moved = [pair for pair in pairs if pair[0] != pair[1]]
        if len(moved) == len(pairs) and max(map(max, moved)) >= LARGEST_REMAINDER:
            return True
        return all(self.is_half(*pair) for pair in moved)

    def is_half_replaced(self, first: int, second: int) -> bool:
        """Whether words differ in one half that is of an address, beside a number of four bytes.

        Beside zero, which may as well belong to what moved, only behind a number of one byte: what
        a kernel points to is aligned.
        """
        uppers, lowers = (first // HALF, second // HALF), (first % HALF, second % HALF)
        if lowers[0] == lowers[1]:
            return self.is_half(*uppers)
        behind = first % ALIGNED != 0 and (first ^ second) % BYTE == 0
        return uppers[0] == uppers[1] and (uppers[0] != 0 or behind) and self.is_half(*lowers)

    def tell(self, values: Sequence[int], live: Sequence[bool]) -> str:
        """A word's values in the three captures, each with what is known of it."""
        rows = zip(NAMES, self.known, values, live, strict=True)
        return "; ".join(
            f"{name} {value:#x} ({known.tell(value) or 'not known'}{', live' if is_live else ''})"
            for name, known, value, is_live in rows
        )

    def _is_low(self, first: int, second: int) -> bool:
        offsets = (((first - m.first) % HALF, (second - m.second) % HALF, m) for m in self.moves)
        return any(one == other < move.size + BYTE for one, other, move in offsets)

    def _is_mapped(self, capture: int, value: int) -> bool:
        spans = (*self._spans(), *self.known[capture].spans)
        return any(start <= value < end for start, end in spans if start >= LOW)

    def _is_upper(self, capture: int, value: int) -> bool:
        """Numbers of one byte may be written over it: the lowest byte says nothing."""
        spans = (*self._spans(), *self.known[capture].spans)
        return any(
            start // HALF // BYTE <= value // BYTE <= (end - 1) // HALF // BYTE
            for start, end in spans
            if start >= LOW
        )

    def _spans(self) -> Iterator[tuple[int, int]]:
        for move in self.moves:
            yield from move.spans
