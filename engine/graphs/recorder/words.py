"""What the bytes of a recorded parameter block are: constants, pointers, or bytes nobody wrote.

The same graph is captured three times: with its regions at one place, at another, and once more at
the first with everything else somewhere else (spread.py). An aligned word that moves exactly with a
region is a pointer into it. A byte that is equal in all three is a constant, whatever stands beside
it: structures of kernels are filled over dead stack, so that one word can hold half of an old
address and a number that the kernel reads. Every other byte becomes zero. Either it differs at one
place: padding, and what a process left on its stack. Or it moves with the placement by no region's
distance: an address that something was written over in part, or of what the driver puts beside the
regions.

Refused are addresses of present memory outside the regions, addresses in a region that stay while
it moves, and numbers of four or eight bytes that move with the placement, as remainders of
addresses do, where they can be no half of an address in the process, whatever stands beside them.
The other bytes are zeroed, which a kernel that reads them shows before anything is published: a
process without torch replays every table with its regions at addresses of other remainders, and
compares bits. It is told of the words that were zeroed though they moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vcc.cache.errors import GraphError
from vcc.engine.graphs.recorder.places import HALF, Places

WORD = 8

Offsets = frozenset[int]
NONE: Offsets = frozenset()


@dataclass(frozen=True, slots=True)
class Captured:
    """The bytes of one parameter block in the three captures.

    `live` are the offsets of words that the driver knew as addresses in present allocations, in
    each capture; `host` of those that were addresses of the process's own code, heap or stack in
    all. In `one_process` no part of such a word is a number that a kernel reads: it becomes zero
    even where it stays the same, unless it is as small as a size. Of what is captured so only some
    is replayed before it is published, so that a word that moved may hold one half of an old
    address, and is refused if it is more.
    """

    first: bytes
    second: bytes
    again: bytes
    live: tuple[Offsets, Offsets, Offsets] = (NONE, NONE, NONE)
    host: Offsets = NONE
    one_process: bool = False


@dataclass(frozen=True, slots=True)
class Relocated:
    """A block without addresses: pointer words are zero and stand in `pointers`.

    Attributes:
        block: constants, and zero elsewhere.
        pointers: (offset in the block, region, byte offset in the region), by offset.
        noise: bytes that were zeroed because nobody wrote them.
        unsteady: words among them, as text, that moved with the placement, or that were addresses
            in regions: dead memory, or the model does not place its tensors alike in every run.
    """

    block: bytes
    pointers: tuple[tuple[int, int, int], ...]
    noise: int = 0
    unsteady: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Word:
    """What stands at one offset: eight bytes, or fewer at the end of a block."""

    at: int
    each: tuple[bytes, ...]
    values: tuple[int, ...]
    live: tuple[bool, ...]
    host: bool
    dead: bool
    one_process: bool

    @property
    def is_constant(self) -> bool:
        return self.each[0] == self.each[1] == self.each[2]

    @property
    def is_steady(self) -> bool:
        """The same at one place."""
        return self.each[0] == self.each[2]

    @property
    def kept(self) -> bytes:
        """The bytes that all agree on, and zero elsewhere."""
        if self.is_constant and not self.dead:
            return self.each[0]
        triples = zip(*self.each, strict=True)
        return bytes(a if a == b == c and not self.dead else 0 for a, b, c in triples)

    @property
    def noise(self) -> int:
        """How many bytes are not kept."""
        if self.is_constant and not self.dead:
            return 0
        return sum(self.dead or not a == b == c for a, b, c in zip(*self.each, strict=True))


def relocate(where: str, captured: Captured, places: Places) -> Relocated:
    """Sort the words of a block.

    Args:
        where: names the node and kernel in a refusal.
        captured: the block in the three captures.
        places: the regions; they do not overlap in either place.

    Raises:
        GraphError: a word is refused; with node, kernel, offset, and its value in each capture with
            what that one knew of it.
    """
    if len({len(block) for block in (captured.first, captured.second, captured.again)}) != 1:
        raise GraphError(f"{where} cannot be stored", "its parameter block changes its size")
    done, pointers, noise = bytearray(), [], 0
    unsteady: list[str] = []
    for word in _words(captured):
        pointer = _pointer(word, places)
        if pointer is None:
            _check(where, word, places)
            done += word.kept
            noise += word.noise
            unsteady += _unsteady(word, places)
        else:
            done += bytes(WORD)
            pointers.append((word.at, *pointer))
    return Relocated(bytes(done), tuple(pointers), noise, tuple(unsteady))


def _words(captured: Captured) -> Iterator[_Word]:
    blocks = (captured.first, captured.second, captured.again)
    for at in range(0, len(captured.first), WORD):
        words = tuple([block[at : at + WORD] for block in blocks])
        values = tuple([int.from_bytes(word, "little") for word in words])
        live = tuple([at in offsets for offsets in captured.live])
        host, one_process = at in captured.host, captured.one_process
        dead = host and one_process and min(values) >= HALF
        yield _Word(at, words, values, live, host, dead, one_process)


def _pointer(word: _Word, places: Places) -> tuple[int, int] | None:
    if len(word.each[0]) != WORD or not word.is_steady:
        return None
    return places.pointer(word.values[0], word.values[1])


def _check(where: str, word: _Word, places: Places) -> None:
    for test, what in _REFUSED:
        if test(word, places):
            told = places.tell(word.values, word.live)
            raise GraphError(
                f"{where} cannot be stored",
                f"byte {word.at} of its parameters holds {what}: {told}",
                "keep what it points to in tensors of the model, or use --compile vcc",
            )


def _stays(word: _Word, places: Places) -> bool:
    return len(word.each[0]) == WORD and word.is_constant and places.in_region(word.values[0])


def _is_outside(word: _Word, places: Places) -> bool:
    """Memory that a kernel reads is there in every capture; where it lies tells nothing then."""
    if not any(word.live):
        return False
    rows = enumerate(zip(word.values, word.live, strict=True))
    outside = [live and not places.is_ours(capture, value) for capture, (value, live) in rows]
    return any(outside) if word.is_steady else all(outside)


def _is_derived(word: _Word, places: Places) -> bool:
    """A number that was made of an address differs where the address does, whatever is beside."""
    if word.is_constant or not word.is_steady or word.host:
        return False
    first, second = word.values[:2]
    if word.one_process:
        return not places.is_half_replaced(first, second)
    return not places.is_left(first, second)


_REFUSED: tuple[tuple[Callable[[_Word, Places], bool], str], ...] = (
    (_stays, "an address that stays while its region moves"),
    (_is_outside, "the address of memory outside the recorded regions"),
    (_is_derived, "a value that depends on addresses, but is none"),
)
"""What is refused, in the order in which it is asked, and how it is called."""


def _unsteady(word: _Word, places: Places) -> Iterator[str]:
    """Says what a zeroed word was that moved with the placement, or between regions' addresses."""
    if word.is_constant or word.host:
        return
    if word.is_steady or all(places.in_region(word.values[i]) for i in (0, 2)):
        yield f"byte {word.at} was {places.tell(word.values, word.live)}"
