"""The field tables of docs/config.md, made from the dataclasses.

Rewrite them with `python tests/support/config_reference.py` from the top of the repository.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from vcc.engine.config.parse import ALIASES
from vcc.engine.config.types import (
    ArenaConfig,
    CompilationConfig,
    DynamicShapes,
    ModelConfig,
    ParallelConfig,
    PassConfig,
)

PAGE = Path(__file__).parents[2] / "docs" / "config.md"
KINDS = (CompilationConfig, PassConfig, DynamicShapes, ArenaConfig, ModelConfig, ParallelConfig)


def table(kind: type) -> str:
    """One Markdown table: field, meaning, key part, why, other names."""
    rows = ["| field | meaning | key | because | also read as |", "|---|---|---|---|---|"]
    for item in fields(kind):
        names = [f"`{new}`" for new, old in ALIASES.get(kind, {}).items() if old == item.name]
        meta = item.metadata
        cells = (f"`{item.name}`", meta["doc"], meta["key"], meta["why"], ", ".join(names))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def rewritten(page: str) -> str:
    """The page with every marked table made anew."""
    for kind in KINDS:
        start, end = f"<!-- {kind.__name__} -->", f"<!-- end {kind.__name__} -->"
        block = f"{start}\n{table(kind)}\n{end}"
        page, count = re.subn(
            f"{re.escape(start)}.*?{re.escape(end)}", lambda _, b=block: b, page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"docs/config.md has {count} tables of {kind.__name__}")
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
