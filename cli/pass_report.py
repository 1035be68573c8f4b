"""What the passes of a build did, as lines to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcc.cache.words import amount
from vcc.cli.console import columns, size_text


def pass_lines(reports: Sequence[Mapping[str, Any]]) -> str:
    """One line a pass: how often it fired, what that saves, or why it did not.

    Args:
        reports: `info["passes"]` of a manifest.
    """
    return columns([(f"  {one['name']}", said(one)) for one in reports])


def said(report: Mapping[str, Any]) -> str:
    """What one pass did, in words."""
    if report.get("skipped"):
        return f"skipped: {report['skipped']}"
    matches, refused = report["matches"], list(report.get("refused", ()))
    parts = [f"fired {matches} time{'s' * (matches != 1)}" if matches else "matched nothing"]
    parts += _saved(report.get("saved", {}))
    if refused:
        parts.append(f"{len(refused)} left, such as {refused[0]}")
    return " · ".join(parts)


def _saved(saved: Mapping[str, int]) -> list[str]:
    found = []
    if saved.get("bytes"):
        found.append(f"saves {size_text(saved['bytes'])} a step")
    if saved.get("launches"):
        found.append(f"saves {amount(saved['launches'], 'launches')} a step")
    return found
