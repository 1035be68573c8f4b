"""vcc compile --dry-run: the resolved configuration, what each part has, how long it takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from vcc.cache.errors import Exit
from vcc.cli.console import columns, out, out_json
from vcc.cli.op_report import op_lines

if TYPE_CHECKING:
    from vcc.cache.store import Store
    from vcc.engine.estimate import Estimate
    from vcc.engine.forecast import Forecast
    from vcc.engine.request import Settled


def dry_run(settled: Settled, store: Store, *, as_json: bool, fail_on_miss: bool) -> None:
    """Print the forecast of a build; exit code 1 on `fail_on_miss` when there is work to do."""
    from vcc.engine.forecast import forecast

    found = forecast(settled, store)
    if as_json:
        out_json(forecast_dict(found))
    else:
        out(_as_text(found))
    if fail_on_miss and found.missing:
        raise typer.Exit(Exit.NEGATIVE)


def forecast_dict(found: Forecast) -> dict[str, object]:
    """A forecast as plain values."""
    request = found.parts[0]
    return {
        "hit": request.artifact,
        "why": "" if request.hit else request.detail,
        "work": found.work.name.lower(),
        "notes": list(found.notes),
        "parts": [asdict(part) for part in found.parts],
        "estimate": asdict(found.estimate),
        "reasons": [asdict(reason) for reason in found.reasons],
        "ops": [one.as_dict() for one in found.ops],
        "compiles": {
            "total": found.compiles.total,
            "pieces": found.compiles.pieces,
            "ranges": list(found.compiles.ranges),
        },
    }


def _as_text(found: Forecast) -> str:
    from vcc.engine.listed import list_text

    # Values come last, because lists of sizes are long.
    reasons = [
        (one.field, one.why, f"{list_text(one.was)} → {list_text(one.now)}")
        for one in found.reasons
    ]
    lines = [columns([("field", "why", "value"), *reasons]), ""]
    if ops := op_lines([one.as_dict() for one in found.ops]):
        lines += [f"custom ops\n{ops}", ""]
    rows = [
        (one.name, "hit" if one.hit else "miss", (one.artifact or "-")[:12], one.detail)
        for one in found.parts
    ]
    lines += [columns([("part", "answer", "artifact", "detail"), *rows]), ""]
    lines += [*found.notes, f"to do: {found.work.value}", f"compiles: {found.compiles}"]
    lines += [f"estimate: {_estimate(found.estimate)}"]
    request = found.parts[0]
    said = f"hit: artifact {(request.artifact or '')[:12]}"
    return "\n".join((*lines, said if request.hit else f"miss: {request.detail}"))


def _estimate(found: Estimate) -> str:
    if not found.seconds:  # unknown, or nothing is compiled
        return found.basis
    return f"about {found.seconds:.1f} s ({found.basis})"
