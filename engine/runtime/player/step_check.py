"""What a node table must hold before steps are written into it and logits are read from it.

The player checks that every tensor lies in its region. Which tensors there are and how large is
the artifact's own word: a table of another step would be filled and read beside its memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.cache.errors import IntegrityError
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.runtime.player.layout import Layout, Tensor

FLOATS = ("float32", "float16", "bfloat16")


def check_step(layout: Layout, sizes: Mapping[str, int], limits: StepLimits) -> None:
    """Refuse a table that is not the step that its name says.

    Args:
        layout: of the table.
        sizes: T rows, B sequences and K blocks of the step.
        limits: of the model.

    Raises:
        IntegrityError: with the size or the tensor that is wrong.
    """
    ranges = {name: (size, size) for name, size in sizes.items()}
    if dict(layout.symbols) != ranges:
        raise _wrong(f"its sizes are {_shown(layout.symbols)}, its name says {_shown(ranges)}")
    _check_tensors(layout, sizes["T"], sizes["B"], limits)


def check_range(
    layout: Layout, limits: StepLimits, tokens: tuple[int, int], *, exact: bool = False
) -> None:
    """Refuse a table of a range of sizes that does not hold every step of it.

    Args:
        layout: of the table.
        limits: of the model.
        tokens: the fewest and the most tokens of its steps.
        exact: these are all that it may say.

    Raises:
        IntegrityError: with the size or the tensor that is wrong.
    """
    wanted = {"T": tokens, "B": (1, limits.max_seqs)}
    found = {name: layout.symbols.get(name, (1, 0)) for name in wanted}
    short = any(found[n][0] > low or found[n][1] < high for n, (low, high) in wanted.items())
    if short or (exact and found["T"] != tokens):
        said = _shown(layout.symbols)
        raise _wrong(f"its sizes are {said}, the artifact's limits are {_shown(wanted)}")
    _check_tensors(layout, found["T"][1], found["B"][1], limits)


def check_shared(first: Layout, other: Layout) -> None:
    """Refuse tables of one artifact that do not mean the same memory by the same names.

    Raises:
        IntegrityError: with the tensor.
    """
    names = {**first.tensors, **other.tensors}
    for name in names:
        one, two = first.tensors.get(name), other.tensors.get(name)
        if one is None or two is None or _place(one) != _place(two):
            raise _wrong(f"{name[:60]} lies elsewhere in the table of another range")


def _place(one: Tensor) -> tuple[object, ...]:
    """What is equal in all ranges; the rows of inputs and results are the range's own."""
    rows = () if one.role in ("input", "output") else one.shape
    return (one.role, one.dtype, one.target, one.address, rows)


def _check_tensors(layout: Layout, tokens: int, sequences: int, limits: StepLimits) -> None:
    rows, seqs = (tokens,), (sequences,)
    adapted = ("lora_slot",) if limits.max_loras else ()
    wanted = {
        **dict.fromkeys(("input_ids", "positions", "slot_mapping", *adapted), rows),
        **dict.fromkeys(("seq_lens", "logits_index"), seqs),
        "query_start": (sequences + 1,),
        "block_table": (*seqs, limits.max_blocks_per_seq),
    }
    for name, shape in wanted.items():
        _check(layout.tensor(name), "input", ("int32",), shape)
    _check(layout.tensor("logits"), "output", FLOATS, (*seqs, limits.vocab))


def _check(found: Tensor, role: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    if found.role != role or found.dtype not in dtypes or found.shape != shape:
        raise _wrong(
            f"{found.name} is {found.role} {found.dtype} {list(found.shape)}, "
            f"a step takes {role} {dtypes[0]} {list(shape)}"
        )


def _shown(ranges: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{name[:20]} {low} to {high}" for name, (low, high) in ranges.items())


def _wrong(why: str) -> IntegrityError:
    return IntegrityError("a node table is not the step that it is stored as", why)
