"""vcc inspect batches: what the steps of a run looked like, and the capture sizes for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcc.cache.words import amount
from vcc.cli import options
from vcc.cli.console import columns, out, out_json

if TYPE_CHECKING:
    from vcc.engine.graphs.suggest import Suggestion
    from vcc.engine.runtime.graph_stat import StepRecord

MOST_REASONS = 8


def inspect_batches(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="what run --trace-batches wrote", show_default=False),
    ],
    graphs: Annotated[
        int, typer.Option("--graphs", metavar="N", min=1, max=512, help="most sizes to suggest")
    ] = 8,
    json: options.Json = False,
) -> None:
    """Sum up the steps of a run and suggest capture sizes."""
    from vcc.engine.runtime.batch_trace import read_trace

    steps = tuple(read_trace(file))
    decode = _suggestion((one for one in steps if one.uniform), graphs)
    every = _suggestion(steps, graphs)
    if json:
        out_json(_as_dict(steps, decode, every))
    else:
        out(_as_text(steps, decode, every))


def _suggestion(steps: Iterable[StepRecord], graphs: int) -> Suggestion:
    from vcc.engine.graphs.suggest import suggest

    return suggest(Counter(one.raw_tokens for one in steps), graphs)


def _as_dict(
    steps: tuple[StepRecord, ...], decode: Suggestion, every: Suggestion
) -> dict[str, object]:
    raw, padded = _rows(steps)
    return {
        "steps": len(steps),
        "decode_steps": sum(one.uniform for one in steps),
        "raw_tokens": raw,
        "padded_tokens": padded,
        "modes": dict(Counter(one.mode for one in steps).most_common()),
        "reasons": [
            {"mode": mode, "reason": reason, "steps": count}
            for (mode, reason), count in _reasons(steps)
        ],
        "decode": _suggested(decode),
        "all": _suggested(every),
    }


def _suggested(one: Suggestion) -> dict[str, object]:
    return {"sizes": list(one.sizes), "padding": round(one.padding, 6)}


def _rows(steps: tuple[StepRecord, ...]) -> tuple[int, int]:
    return sum(one.raw_tokens for one in steps), sum(one.padded_tokens for one in steps)


def _reasons(steps: tuple[StepRecord, ...]) -> list[tuple[tuple[str, str], int]]:
    return Counter((one.mode, one.reason) for one in steps).most_common()


def _as_text(steps: tuple[StepRecord, ...], decode: Suggestion, every: Suggestion) -> str:
    if not steps:
        return "no steps"
    (raw, padded), uniform = _rows(steps), sum(one.uniform for one in steps)
    share = 100 * (padded - raw) / max(padded, 1)
    reasons = _reasons(steps)
    shown = [("steps", "mode", "reason")]
    shown += [(str(count), mode, reason) for (mode, reason), count in reasons[:MOST_REASONS]]
    lines = [
        f"{amount(len(steps), 'steps')}, {uniform} of them decode only; "
        f"{amount(raw, 'tokens')}, {share:.1f} % padding",
        columns(shown),
    ]
    if len(reasons) > MOST_REASONS:
        lines.append(f"and {len(reasons) - MOST_REASONS} more")
    for title, one in (("decode steps", decode), ("all steps", every)):
        if one.sizes:
            sizes = ",".join(map(str, one.sizes))
            lines.append(f"for {title}: --shapes {sizes} ({100 * one.padding:.1f} % padding)")
    return "\n".join(lines)
