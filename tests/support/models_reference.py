"""The generated parts of docs/models.md, and the facts that only a trace knows.

Rewrite both with `PYTHONPATH=tests python -m support.models_reference` from the top of the
repository.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from support.checkpoints import ARCHITECTURES, OWN_SIZES, SIZES
from support.decoders import LAYERED
from support.flow import ask
from vcc.engine.compile.source import trace_request
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
from vcc.engine.models.listing import FACTS, Listed, refused_by_name, supported
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import apply
from vcc.engine.passes.context import context_of
from vcc.engine.passes.user import chosen
from vcc.engine.request import settle
from vcc.engine.trace.trace import trace

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
LAYERS = 4


def facts_of(family: str) -> dict[str, Any]:
    """Unique pieces of a tiny decoder, and the passes that fire on it on the CPU by default."""
    config = {"architectures": [ARCHITECTURES[family]], **SIZES, **OWN_SIZES[family]}
    config |= LAYERED.get(family, {}) | {"num_hidden_layers": LAYERS}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(config))
        settled = settle(ask(name, weights="none", max_num_batched_tokens=64, max_num_seqs=4))
        traced = trace(trace_request(settled))
        passed = apply(traced, chosen(settled.resolved.config), context_of(settled))
    fired = [one.name for one in passed.reports if one.matches]
    return {"pieces": len(split(passed.traced, DEFAULT_SPLITTING_OPS, ()).unique), "passes": fired}


def all_facts() -> dict[str, Any]:
    """By architecture."""
    return {ARCHITECTURES[family]: facts_of(family) for family in ARCHITECTURES}


def text_of(facts: dict[str, Any]) -> str:
    """The content of supported.json."""
    return json.dumps(facts, indent=2) + "\n"


def table() -> str:
    """The architectures."""
    heads = ("architecture", "its own features", "pieces", "passes that fire", "dtypes", "refused")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *(_row(one) for one in supported())])


def _row(one: Listed) -> str:
    passes = ", ".join(f"`{name}`" for name in one.passes)
    cells = (f"`{one.architecture}`", one.about, one.pieces, passes, one.dtypes)
    return f"| {' | '.join(map(str, cells))} | {', '.join(one.refused)} |"


def refused_table() -> str:
    """The architectures that are refused."""
    rows = [f"| `{name}` | {why} |" for name, why in refused_by_name().items()]
    return "\n".join(["| architecture | reason |", "|---|---|", *rows])


def rewritten(page: str) -> str:
    """The page with its marked tables made anew."""
    for mark, made in (("models", table()), ("refused", refused_table())):
        start, end = f"<!-- {mark} -->", f"<!-- end {mark} -->"
        pattern = f"{re.escape(start)}.*?{re.escape(end)}"
        block = f"{start}\n{made}\n{end}"
        page, count = re.subn(pattern, lambda _, b=block: b, page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"docs/models.md has {count} tables {mark}")
    return page


if __name__ == "__main__":
    FACTS.write_text(text_of(all_facts()), encoding="utf-8")
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
