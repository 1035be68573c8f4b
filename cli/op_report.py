"""The back end of each custom op, as lines to read: what was chosen, what was refused, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vcc.cli.console import columns


def op_lines(rows: Any) -> str:
    """One line a custom op, and one a candidate that was refused for another reason.

    Args:
        rows: `info["ops"]` of a manifest, which may be from elsewhere and say anything.
    """
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    lines = [line for row in listed for line in _lines(row)]
    return columns(lines) if lines else ""


def _lines(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    reason = str(row.get("reason", ""))
    yield f"  {row.get('op', '?')}", str(row.get("backend", "?")), reason
    for name, why in _refused(row.get("refused")):
        if why not in reason:
            yield "", f"not {name}", why


def _refused(found: Any) -> Sequence[tuple[str, str]]:
    listed = found if isinstance(found, list) else []
    return [
        (str(one.get("backend", "?")), str(one.get("reason", "")))
        for one in listed
        if isinstance(one, dict)
    ]
