"""vcc explain: why a look-up missed, and what would make it hit."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from vcc.cli import options
from vcc.cli.console import columns, out, out_json
from vcc.cli.folding import folding
from vcc.cli.place import Place, open_store, takes_place
from vcc.cli.request import ModelOptions, build_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcc.cache.store import Store
    from vcc.engine.explain import Candidate, Cause, Explanation

SHOWN = 12
"""Causes of a candidate that are printed; --json has all."""


@dataclass(frozen=True, slots=True)
class Hypothetical(ModelOptions):
    """A look-up that might be made; without a model, the last one that missed."""

    model: options.OptionalModel = None  # type: ignore[assignment]


@folding("asked", Hypothetical, ("jobs", "keep"))
@takes_place
def explain_command(asked: Hypothetical, place: Place, json: options.Json = False) -> None:
    """Explain why the last look-up missed, or what a run of MODEL with these options would find.

    Shows the nearest artifacts, what differs with the heaviest factor first, and what to do.
    """
    store = open_store(place)
    found = _last(store) if asked.model is None else _hypothetical(asked, store)
    if json:
        out_json(explanation_dict(found))
    else:
        out(explanation_text(found))


def _hypothetical(asked: ModelOptions, store: Store) -> Explanation:
    from vcc.engine.explain import explain
    from vcc.engine.request import settle

    return explain(settle(build_request(asked)), store)


def _last(store: Store) -> Explanation:
    from vcc.cache.errors import MissingArtifact
    from vcc.cache.notes import last_lookup
    from vcc.cache.root import LAYOUT
    from vcc.engine.explain import explain_noted

    noted = last_lookup(store.root)
    if noted is None:
        made = (store.root / LAYOUT).exists()
        raise MissingArtifact(
            "no look-up to explain",
            f"none that missed is noted in {store.root}"
            + ("" if made else ", where nothing is stored yet: a look-up makes no store"),
            "name a model: vcc explain MODEL, with the options of the run",
        )
    return explain_noted(noted, store)


def explanation_dict(found: Explanation) -> dict[str, object]:
    """An explanation as plain values."""
    return {
        "model": found.model,
        "when": found.when,
        "hit": None if found.hit is None else found.hit.artifact,
        "why": found.why,
        "nearest": [
            {
                "artifact": one.entry.artifact,
                "title": one.entry.title,
                "created": one.entry.created,
                "causes": [asdict(cause) for cause in one.causes],
            }
            for one in found.nearest
        ],
        "rebuild": [asdict(cause) for cause in found.rebuild],
    }


def explanation_text(found: Explanation) -> str:
    """An explanation for people: nearest artifacts, each with what differs."""
    lines = []
    if found.when:
        ago = max(0, int(time.time()) - found.when)
        lines.append(f"the look-up of {found.model} that missed {ago} s ago:")
    if found.hit is not None:
        lines.append(f"hit: artifact {found.hit.artifact[:12]}, {found.hit.title}")
        if found.rebuild:
            lines.append("\na build here would compile again, because the code key differs:")
            lines.append(_table(found.rebuild))
        return "\n".join(lines)
    lines.append(f"miss: {found.why}")
    lines += [_candidate(one) for one in found.nearest]
    return "\n".join(lines)


def _candidate(one: Candidate) -> str:
    head = f"\nartifact {one.entry.artifact[:12]}, {one.entry.title}"
    return f"{head}\n{_table(one.causes)}" if one.causes else f"{head}\n  nothing differs"


def _table(causes: Sequence[Cause]) -> str:
    rows = [("factor", "about", "it has", "wanted", "hint")]
    rows += [
        (one.label, one.group, _short(one.found), _short(one.wanted), one.hint)
        for one in causes[:SHOWN]
    ]
    text = "\n".join(f"  {line}" for line in columns(rows).splitlines())
    more = len(causes) - SHOWN
    return f"{text}\n  and {more} more: --json shows all" if more > 0 else text


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= 24 else f"{value[:21]}..."
