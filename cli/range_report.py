"""The ranges of sizes of an artifact, as rows to read."""

from __future__ import annotations

from typing import Any


def range_rows(found: Any) -> list[tuple[str, ...]]:
    """A row a range: sizes, calls of pieces, unique pieces, what the passes did; no rows for one.

    Args:
        found: `info["ranges"]` of a manifest; one from elsewhere may say anything. Of a long list
            the ends are shown.
    """
    from vcc.engine.listed import few

    listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if not listed:
        return []
    gap = ("…", "", "", f"{len(listed)} ranges in all")
    return [("sizes", "pieces", "unique", "passes that fired"), *few([*map(_row, listed)], gap)]


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    compiled, passes = one.get("compiled"), one.get("passes")
    fired = {k: v for k, v in passes.items() if v and isinstance(v, int)} if passes else {}
    low, _, high = str(one.get("sizes", "?")).partition("-")
    return (
        low if low == high else f"{low} to {high}",
        str(one.get("pieces", "?")),
        str(len(compiled)) if isinstance(compiled, list) else "?",
        ", ".join(f"{name} {count}" for name, count in fired.items()) or "none",
    )
