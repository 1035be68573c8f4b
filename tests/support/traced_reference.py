"""The tables of docs/transformers.md: unique pieces at two depths, passes that fire; and names.

Rewrite it with `PYTHONPATH=tests python -m support.traced_reference` from the top of the
repository.
"""

from __future__ import annotations

import json
import re
import tempfile
import textwrap
from pathlib import Path

from support.flow import ask
from support.traced_checkpoints import ABOUT, OTHERS, config_of
from vcc.engine.compile.source import trace_request
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import apply
from vcc.engine.passes.context import context_of
from vcc.engine.passes.user import chosen
from vcc.engine.request import settle
from vcc.engine.trace.trace import trace

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"
DEPTHS = (4, 12)


def row(architecture: str) -> str:
    """One line of the table."""
    counts, fired = [], dict[str, None]()
    for layers in DEPTHS:
        count, names = _facts(architecture, layers)
        counts.append(count)
        fired |= dict.fromkeys(names)
    passes = ", ".join(f"`{name}`" for name in fired)
    cells = (f"`{architecture}`", ABOUT[architecture], *map(str, counts), passes)
    return f"| {' | '.join(cells)} |"


def _facts(architecture: str, layers: int) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        config = config_of(architecture, num_hidden_layers=layers)
        (Path(name) / "config.json").write_text(json.dumps(config))
        settled = settle(ask(name, weights="none", max_num_batched_tokens=64, max_num_seqs=4))
        traced = trace(trace_request(settled))
        passed = apply(traced, chosen(settled.resolved.config), context_of(settled))
    pieces = split(passed.traced, DEFAULT_SPLITTING_OPS, ()).unique
    return len(pieces), [one.name for one in passed.reports if one.matches]


def table() -> str:
    """All rows with their head."""
    first, second = DEPTHS
    heads = ("architecture", "what it has", f"pieces of {first} layers", f"of {second}")
    lines = [f"| {' | '.join((*heads, 'passes that fire'))} |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(row, ABOUT)])


def others() -> str:
    """The names of families that equal `transformers` as well, in lines of the page."""
    names = ", ".join(f"`{name}`" for name in sorted(OTHERS))
    return "\n".join(textwrap.wrap(names, 110, break_long_words=False))


def rewritten(page: str) -> str:
    """The page with the table and the names made anew."""
    return _placed(_placed(page, "traced", table()), "others", others())


def _placed(page: str, name: str, text: str) -> str:
    block = f"<!-- {name} -->\n{text}\n<!-- end {name} -->"
    pattern = f"<!-- {name} -->.*?<!-- end {name} -->"
    page, count = re.subn(pattern, lambda _: block, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"docs/transformers.md has {count} places for {name}")
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
