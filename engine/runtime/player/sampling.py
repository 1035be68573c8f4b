"""What the device samples by: parameters and counters of each sequence, in an input slot."""

from __future__ import annotations

from collections.abc import Sequence

from vcc.engine.runtime.device_steps import SampleRow
from vcc.engine.runtime.player.layout import Layout

NAMES = ("temperature", "top_p", "top_k", "seed", "request", "step", "active")

HOTTEST = 1e30
MOST_TOKENS = 2**31 - 1
"""What fits the device's types and means the same as more: all tokens alike, all tokens kept."""


def write_sampling(layout: Layout, slot: int, rows: Sequence[SampleRow], seqs: int) -> None:
    """Fill the sampling inputs of a slot, padded to `seqs` sequences that do nothing.

    Args:
        layout: of the player.
        slot: number of the slot.
        rows: one a sequence of the batch, in its order.
        seqs: with padding.
    """
    arrays = {name: layout.array(slot, name) for name in NAMES}
    for name in ("temperature", "seed", "request", "step", "active", "top_k"):
        arrays[name][len(rows) : seqs] = 0
    arrays["top_p"][len(rows) : seqs] = 1.0
    for index, row in enumerate(rows):
        arrays["temperature"][index] = min(row.params.temperature, HOTTEST)
        arrays["top_p"][index] = row.params.top_p
        arrays["top_k"][index] = min(row.params.top_k, MOST_TOKENS)
        arrays["seed"].view("u8")[index] = row.params.seed
        arrays["request"][index] = row.request
        arrays["step"][index] = row.step
        arrays["active"][index] = 1


def write_tokens(layout: Layout, slot: int, rows: Sequence[SampleRow], seqs: int) -> None:
    """Fill the tokens that a step advances from."""
    tokens = layout.array(slot, "token")
    tokens[: len(rows)] = [row.token for row in rows]
    tokens[len(rows) : seqs] = 0
