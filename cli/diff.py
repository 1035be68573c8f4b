"""vcc diff: two artifacts side by side, or what two models ask for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from vcc.cli import options
from vcc.cli.console import columns, out, out_json, size_text
from vcc.cli.folding import folding
from vcc.cli.place import Place, open_store, takes_place
from vcc.cli.request import ModelOptions, build_request
from vcc.cli.stored import find_by_id

if TYPE_CHECKING:
    from vcc.cache.key import Difference
    from vcc.cache.store import Store
    from vcc.engine.compare import Blobs, Comparison, Side


@dataclass(frozen=True, slots=True)
class Shared(ModelOptions):
    """The options of both models, which are named apart."""

    model: options.Model = ""


Name = typer.Argument(metavar="ID|MODEL", help="6 or more digits of an artifact's id, or a model")


@folding("asked", Shared, ("model", "jobs", "keep"))
@takes_place
def diff_command(
    a: Annotated[str, Name],
    b: Annotated[str, Name],
    asked: Shared,
    place: Place,
    json: options.Json = False,
) -> None:
    """Show what differs between two artifacts, or between the requests of two models.

    A model stands for what a build with these options would ask for.
    """
    from vcc.engine.compare import compare

    store = open_store(place)
    sides = [_side(name, asked, store) for name in (a, b)]
    found = compare(*sides)
    if json:
        out_json(_as_dict(sides, found))
    else:
        out(_as_text(sides, found))


def _side(name: str, asked: ModelOptions, store: Store) -> Side:
    from vcc.engine.compare import Side
    from vcc.engine.request import settle

    entry = find_by_id(store, name)
    if entry is not None:
        return Side.of_artifact(entry.artifact, store.load(entry))
    return Side.of_request(settle(build_request(replace(asked, model=name))))


def _as_dict(sides: list[Side], found: Comparison) -> dict[str, object]:
    return {
        "a": {"name": sides[0].name, "title": sides[0].title},
        "b": {"name": sides[1].name, "title": sides[1].title},
        "equal": found.equal,
        "sections": {
            name: [{"label": d.label, "a": d.found, "b": d.wanted} for d in differences]
            for name, differences in found.sections.items()
        },
        "blobs": None if found.blobs is None else asdict(found.blobs),
    }


def _as_text(sides: list[Side], found: Comparison) -> str:
    a, b = sides
    lines = [f"a: {a.name[:12] if a.blobs else a.name}, {a.title}"]
    lines += [f"b: {b.name[:12] if b.blobs else b.name}, {b.title}"]
    for name, differences in found.sections.items():
        if differences:
            lines.append(f"\n{name}\n{_rows(differences)}")
    if found.blobs is not None:
        lines.append(f"\nblobs\n{_blob_rows(found.blobs)}")
    return "\n".join([*lines, "\nnothing differs"] if found.equal else lines)


def _rows(differences: tuple[Difference, ...]) -> str:
    rows = [(d.label, _short(d.found), _short(d.wanted)) for d in differences]
    return _indented(columns([("label", "a", "b"), *rows]))


def _blob_rows(blobs: Blobs) -> str:
    rows = [("same", str(len(blobs.same)), f"{size_text(blobs.shared)} stored once")]
    for kind in ("changed", "added", "removed"):
        names = getattr(blobs, kind)
        rows.append((kind, str(len(names)), ", ".join(map(_short, names[:4]))))
    return _indented(columns(rows))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= 48 else f"{value[:45]}..."
