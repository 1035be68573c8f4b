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


def check_range(layout: Layout, limits: StepLimits) -> None:
    """Refuse a table of all sizes that does not hold every step within the limits.

    Raises:
        IntegrityError: with the size or the tensor that is wrong.
    """
    most = {"T": limits.max_tokens, "B": limits.max_seqs}
    found = {name: layout.symbols.get(name, (1, 0)) for name in most}
    if any(low > 1 or high < most[name] for name, (low, high) in found.items()):
        raise _wrong(f"its sizes are {_shown(layout.symbols)}, the artifact's limits are {most}")
    _check_tensors(layout, found["T"][1], found["B"][1], limits)


def _check_tensors(layout: Layout, tokens: int, sequences: int, limits: StepLimits) -> None:
    rows, seqs = (tokens,), (sequences,)
    wanted = {
        **dict.fromkeys(("input_ids", "positions", "slot_mapping"), rows),
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
