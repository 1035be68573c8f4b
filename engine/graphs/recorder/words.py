"""What the bytes of a recorded parameter block are: constants, pointers, or bytes nobody wrote.

The same graph is captured three times: with its regions at one place, at another, and once more at
the first. Bytes that differ between the two captures at one place are noise (padding of structures,
dead stack) and become zero. An aligned word that moves exactly with a region is a pointer into it.
A byte that is equal in all three is a constant, whatever stands beside it: structures of kernels
are filled over dead stack, so that one word can hold half of an old address and a number that the
kernel reads. Anything else depends on an address in a way that cannot be reproduced elsewhere, and
is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcc.cache.errors import GraphError

WORD = 8

HALF = WORD // 2
_LOW = (1 << 8 * HALF) - 1


@dataclass(frozen=True, slots=True)
class Move:
    """A region of `size` bytes and where it lay in the captures; `region` is its index."""

    region: int
    first: int
    second: int
    size: int


@dataclass(frozen=True, slots=True)
class Captured:
    """The bytes of one parameter block in the three captures.

    `live` are the offsets of words that the driver knew as addresses in present allocations, in the
    first capture; `host` of those that were addresses of the process's own code, heap or stack in
    each. With `host_is_dead` no part of such a word is a number that a kernel reads: it becomes
    zero even where it stays the same. `low` are the offsets of words whose lower half was such an
    address in each: a program that is not position-independent has its heap below 4 GiB.
    """

    first: bytes
    second: bytes
    again: bytes
    live: frozenset[int] = frozenset()
    host: frozenset[int] = frozenset()
    host_is_dead: bool = False
    low: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Relocated:
    """A block without addresses: pointer words are zero and stand in `pointers`.

    Attributes:
        block: constants, and zero elsewhere.
        pointers: (offset in the block, region, byte offset in the region), by offset.
        noise: bytes that were zeroed because nobody wrote them.
        unsteady: those of them that were addresses in regions, as text: either dead memory, or the
            model does not place its tensors alike in every run.
    """

    block: bytes
    pointers: tuple[tuple[int, int, int], ...]
    noise: int = 0
    unsteady: tuple[str, ...] = ()


def relocate(where: str, captured: Captured, moves: Sequence[Move]) -> Relocated:
    """Sort the words of a block.

    Args:
        where: names the node and kernel in a refusal.
        captured: the block in the three captures.
        moves: the regions; they do not overlap in either place.

    Raises:
        GraphError: a word depends on an address in another way, or is the address of memory
            outside the regions; with node, kernel and offset.
    """
    blocks = (captured.first, captured.second, captured.again)
    if len({len(block) for block in blocks}) != 1:
        raise GraphError(f"{where} cannot be stored", "its parameter block changes its size")
    done = bytearray(len(captured.first))
    pointers, noise, unsteady = [], 0, []
    for at in range(0, len(done), WORD):
        word = _word_at(where, at, captured, moves)
        if word.pointer is not None:
            pointers.append((at, *word.pointer))
        elif word.constant and at in captured.live:
            value = int.from_bytes(word.value, "little")
            what = f"{value:#x}, the address of memory outside the recorded regions"
            raise _refused(where, at, what)
        elif word.noise and (text := _moved(at, blocks, moves)):
            unsteady.append(text)
        done[at : at + WORD] = word.value
        noise += word.noise
    return Relocated(bytes(done), tuple(pointers), noise, tuple(unsteady))


@dataclass(frozen=True, slots=True)
class _Word:
    value: bytes
    constant: bool = False
    pointer: tuple[int, int] | None = None
    noise: int = 0


def _word_at(where: str, at: int, captured: Captured, moves: Sequence[Move]) -> _Word:
    blocks = (captured.first, captured.second, captured.again)
    words = tuple(block[at : at + WORD] for block in blocks)
    if at in captured.host:
        return _host(words, captured.host_is_dead)
    if at in captured.low and (word := _low(words)) is not None:
        return word
    return _word(where, at, words, moves, live=at in captured.live)


_Words = tuple[bytes, ...]
"""What stands at one offset in the three captures."""


def _host(words: _Words, dead: bool) -> _Word:
    """A word that was an address of the process each time; it moves with no region."""
    return _Word(bytes(WORD), noise=WORD) if dead else _noise(*words)


def _low(words: _Words) -> _Word | None:
    """A word whose lower half was an address of the process each time, if that half moved.

    One that stays may as well be a size or a count.
    """
    (low, *lows), (top, *tops) = ([word[half] for word in words] for half in _HALVES)
    if all(one == low for one in lows) or any(one != top for one in tops):
        return None
    return _Word(bytes(HALF) + top, noise=HALF)


def _word(where: str, at: int, words: _Words, moves: Sequence[Move], *, live: bool) -> _Word:
    first, second, again = words
    if first == again == second:
        value = int.from_bytes(first, "little")
        if len(first) == WORD and any(_inside(value, move) for move in moves):
            raise _refused(where, at, f"{value:#x}, an address that stays while its region moves")
        return _Word(first, constant=True)
    if first != again:
        return _noise(first, second, again)
    pointer = _pointer(first, second, moves)
    if pointer is None and not live and (rest := _stale_end(first, second, moves)) is not None:
        return _Word(rest, noise=HALF - 1)
    if pointer is None and (rest := _stale_half(first, second, moves)) is not None:
        return _Word(rest, noise=HALF)
    if pointer is None:
        text = f"{first[::-1].hex()} became {second[::-1].hex()}"
        raise _refused(where, at, f"a value that depends on addresses, but is none ({text})")
    return _Word(bytes(WORD), pointer=pointer)


def _stale_half(first: bytes, second: bytes, moves: Sequence[Move]) -> bytes | None:
    """The word without the half that is left of an old address beside a number of four bytes.

    Addresses of a region differ in both halves between the two places, so a word with a half that
    stays holds none.
    """
    if len(first) != WORD:
        return None
    lows, tops = ([int.from_bytes(one[at], "little") for one in (first, second)] for at in _HALVES)
    if lows[0] == lows[1] and all(_is_top(top, moves) for top in tops):
        return first[:HALF] + bytes(HALF)
    if tops[0] == tops[1] != 0 and any(_same_low(lows[0], lows[1], move) for move in moves):
        return bytes(HALF) + first[HALF:]
    return None


def _stale_end(first: bytes, second: bytes, moves: Sequence[Move]) -> bytes | None:
    """The word without what is left of the lower half of an old address behind a field of one byte.

    Such is torch's type of a number with its three bytes of padding. What a kernel points to is
    aligned, so that a byte which no aligned address ends in is a field, and the half no address.
    The old address is one of a region, or of a whole page of 2 MiB: what the driver and the process
    have elsewhere is given out in those.
    """
    if len(first) != WORD:
        return None
    for half, other in (_HALVES, _HALVES[::-1]):
        one, two = (int.from_bytes(word[half], "little") for word in (first, second))
        alike = first[other] == second[other] and (one ^ two) & 0xFF == 0
        old = (one | two) & _WITHIN_PAGE == 0 or any(_same_low(one, two, move) for move in moves)
        if alike and one % _ALIGNED and old:
            return first[: half.start + 1] + bytes(HALF - 1) + first[half.stop :]
    return None


_WITHIN_PAGE = (2 << 20) - 256
"""The bits of an address within a page, but for those of the field."""

_ALIGNED = 16
"""Bytes: addresses of tensors are multiples of it."""

_HALVES = (slice(0, HALF), slice(HALF, WORD))


_HOST_TOPS = (
    range(0x5500, 0x5800),
    range(0x7E00, 0x8000),
    range(0xAAAA, 0xAAAC),
    range(0xFFFF, 0x10000),
)
"""Upper halves of addresses of code, heap and stacks, where Linux puts them on x86-64 and ARM."""


def _is_top(top: int, moves: Sequence[Move]) -> bool:
    """Whether an address of a region, at either place, or of the process has this upper half."""
    return any(top in tops for tops in _HOST_TOPS) or any(
        base >> 32 <= top <= (base + move.size - 1) >> 32
        for move in moves
        for base in (move.first, move.second)
    )


def _same_low(one: int, other: int, move: Move) -> bool:
    """Whether these are the lower halves of one offset in the region, at both places."""
    return (one - move.first) & _LOW == (other - move.second) & _LOW < move.size


def _moved(at: int, blocks: Sequence[bytes], moves: Sequence[Move]) -> str:
    """Says so when a word was an address in a region both times at one place, but another one."""
    one, other = (int.from_bytes(blocks[i][at : at + WORD], "little") for i in (0, 2))
    if all(any(_inside(value, move) for move in moves) for value in (one, other)):
        return f"byte {at} was {one:#x}, then {other:#x} at the same place"
    return ""


def _inside(value: int, move: Move) -> bool:
    return any(base <= value < base + move.size for base in (move.first, move.second))


def _pointer(first: bytes, second: bytes, moves: Sequence[Move]) -> tuple[int, int] | None:
    if len(first) != WORD:
        return None
    one, other = (int.from_bytes(word, "little") for word in (first, second))
    for move in moves:
        offset = one - move.first
        if 0 <= offset < move.size and other - move.second == offset:
            return move.region, offset
    return None


def _noise(first: bytes, second: bytes, again: bytes) -> _Word:
    """Keep the bytes that all three agree on: they may belong to a field beside padding."""
    triples = list(zip(first, second, again, strict=True))
    kept = bytes(a if a == b == c else 0 for a, b, c in triples)
    return _Word(kept, noise=sum(not a == b == c for a, b, c in triples))


def _refused(where: str, at: int, what: str) -> GraphError:
    return GraphError(
        f"{where} cannot be stored",
        f"byte {at} of its parameters holds {what}",
        "keep what it points to in tensors of the model, or use --compile vcc",
    )
