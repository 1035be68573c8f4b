"""Endless series of allocations and frees, for tests and benchmarks of the arena."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

MIB = 1 << 20
Operations = Iterator[tuple[str, int]]
"""("allocate", bytes), or ("free", which of the live blocks in order of their allocation)."""


def decoder_steps(draw: random.Random) -> Operations:
    """A serving process by its shapes: weights, then steps of activations.

    The sizes and lifetimes are those of a decoder's step (hidden 4096, vocabulary 128256, bf16):
    each layer allocates its activations and frees them in another order; the number of tokens
    changes from step to step, and now and then an adapter is loaded or dropped.
    """
    for _ in range(32):
        for size in (2 * 4096 * 4096, 2 * 4096 * 1024, 2 * 4096 * 14336 // 4, 2 * 4096):
            yield ("allocate", size)
    held = 128
    while True:
        tokens = draw.choice((1, 2, 7, 64, 200, 511, 2048))
        sizes = [tokens * width * 2 for width in (4096, 6144, 28672, 14336, 4096, 128)]
        for size in sizes:
            yield ("allocate", size)
        for left in range(len(sizes), 0, -1):
            yield ("free", held + draw.randrange(left))
        if draw.random() < 0.05:
            yield ("allocate", draw.choice((4, 8, 16, 32)) * MIB)
            held += 1
        if held > 140:
            yield ("free", draw.randrange(128, held))
            held -= 1


def uniform(draw: random.Random) -> Operations:
    """Sizes from 512 B to 64 MiB, as many of each power of two; about 400 blocks alive."""
    alive = 0
    while True:
        if alive < 300 or (alive < 500 and draw.random() < 0.5):
            yield ("allocate", int(2 ** draw.uniform(9, 26)))
            alive += 1
        else:
            yield ("free", draw.randrange(alive))
            alive -= 1


def waves(draw: random.Random) -> Operations:
    """Grows to many blocks and shrinks to a third, again and again."""
    alive = 0
    while True:
        for _ in range(draw.randrange(200, 2000)):
            yield ("allocate", int(2 ** draw.uniform(12, 26)))
            alive += 1
        while alive > 600:
            yield ("free", draw.randrange(alive))
            alive -= 1


SERIES: dict[str, Callable[[random.Random], Operations]] = {
    "decoder steps": decoder_steps,
    "uniform": uniform,
    "waves": waves,
}


def worst_waste(
    series: Callable[[random.Random], Operations],
    allocate: Callable[[int], int],
    free: Callable[[int], None],
    ratio: Callable[[], float],
    operations: int = 100_000,
) -> float:
    """The largest ratio seen while a series runs, asked every 2,000 operations."""
    worst, blocks = 0.0, []
    source = series(random.Random(11))
    for step in range(1, operations + 1):
        what, value = next(source)
        if what == "allocate":
            blocks.append(allocate(value))
        else:
            free(blocks.pop(value))
        if step % 2_000 == 0:
            worst = max(worst, ratio())
    for block in blocks:
        free(block)
    return worst
