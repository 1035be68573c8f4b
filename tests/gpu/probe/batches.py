"""Sequences over a paged KV cache: the arrays of the step interface, padded to declared sizes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Sequences:
    """Block tables and lengths of the sequences in a cache; blocks are handed out in random order.

    Args:
        blocks: KV blocks in all.
        block_size: tokens a block.
        table_width: blocks a sequence may have.
    """

    def __init__(self, blocks: int, block_size: int, table_width: int) -> None:
        self._block_size, self._width = block_size, table_width
        self._free = list(range(blocks))
        random.Random(1).shuffle(self._free)
        self._tables: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}

    def rewind(self, sequence: int, length: int) -> None:
        """Forget the tokens of a sequence past `length`; its blocks stay."""
        self._lengths[sequence] = length

    def batch(
        self,
        work: Mapping[int, Sequence[int]],
        tokens: int,
        seqs: int,
        wanted: Sequence[int] | None = None,
    ) -> dict[str, Array]:
        """One step's inputs.

        Args:
            work: the next tokens of each sequence.
            tokens, seqs: sizes after padding.
            wanted: rows whose logits are wanted; the last row of each sequence by default.
        """
        ids: list[int] = []
        places: list[int] = []
        slots: list[int] = []
        starts = [0]
        for sequence, new in work.items():
            begin = self._grow(sequence, len(new))
            span = range(begin, begin + len(new))
            ids += new
            places += span
            slots += [self._slot(sequence, place) for place in span]
            starts.append(len(ids))
        rows = [end - 1 for end in starts[1:]] if wanted is None else list(wanted)
        table = [self._row(s) for s in work] + [[0] * self._width] * (seqs - len(work))
        return {
            "input_ids": _padded(ids, tokens, 0),
            "positions": _padded(places, tokens, 0),
            "slot_mapping": _padded(slots, tokens, -1),
            "block_table": np.array(table, np.int32),
            "seq_lens": _padded([self._lengths[s] for s in work], seqs, 0),
            "query_start": _padded(starts, seqs + 1, len(ids)),
            "logits_index": _padded(rows, seqs, 0),
        }

    def _grow(self, sequence: int, count: int) -> int:
        begin = self._lengths.get(sequence, 0)
        self._lengths[sequence] = begin + count
        blocks = self._tables.setdefault(sequence, [])
        while len(blocks) * self._block_size < begin + count:
            blocks.append(self._free.pop())
        return begin

    def _slot(self, sequence: int, place: int) -> int:
        block, offset = divmod(place, self._block_size)
        return self._tables[sequence][block] * self._block_size + offset

    def _row(self, sequence: int) -> list[int]:
        blocks = self._tables[sequence]
        return blocks + [0] * (self._width - len(blocks))


def _padded(values: Sequence[int], size: int, filler: int) -> Array:
    return np.array([*values, *[filler] * (size - len(values))], np.int32)
