"""vcc verify: is an artifact whole, and does its table compute what the model does."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cache.words import amount
from vcc.cli import options
from vcc.cli.console import columns, events, out, out_json, short, size_text
from vcc.cli.place import Place, open_store, takes_place
from vcc.cli.request import ModelOptions, build_request, takes_model
from vcc.cli.stored import find_entry, names_artifact

if TYPE_CHECKING:
    from vcc.cache.request import Entry
    from vcc.cache.store import Store
    from vcc.engine.verify_interpret import Interpreted
    from vcc.engine.verify_run import Ran


@takes_model("keep")
@takes_place
def verify_command(
    asked: ModelOptions,
    place: Place,
    interpret: Annotated[
        bool,
        typer.Option(
            "--interpret", help="rebuild for --target and run the step on the CPU, in fp32"
        ),
    ] = False,
    run: Annotated[
        bool,
        typer.Option("--run", help="also check what each piece computes here against its golden"),
    ] = False,
    tokens: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--tokens", metavar="1,7,40", help="with --interpret: tokens of the steps to run"
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Check a stored artifact, or what a model's GPU code computes.

    MODEL may be an artifact's id. A model's newest artifact is checked; with options of the model,
    the one that a run with them would boot.
    """
    if interpret and run:
        from vcc.cache.errors import UsageError

        raise UsageError(
            "--interpret and --run do not go together",
            "one runs a step on the CPU, the other the stored code where it belongs",
            "give one of them",
        )
    if tokens is not None and not interpret:
        from vcc.cache.errors import UsageError

        raise UsageError(
            "--tokens says which steps --interpret runs",
            "a stored artifact is checked without running a step",
            "add --interpret, or leave --tokens out",
        )
    if interpret:
        _interpret(asked, tokens, place, as_json=json)
    else:
        _stored(asked, place, run=run, as_json=json)


def _named(asked: ModelOptions, store: Store) -> Entry:
    """The newest of the model, or the one that the options name.

    Raises:
        UsageError: options beside an id, or one that chooses no artifact.
        MissingArtifact: there is none.
    """
    from vcc.cache.errors import UsageError

    if asked.jobs:
        raise UsageError(
            "--jobs says how --interpret builds",
            "a stored artifact is checked without building one",
            "add --interpret, or leave --jobs out",
        )
    given = _given(asked)
    if not given:
        return find_entry(store, asked.model)
    if names_artifact(store, asked.model):
        raise UsageError(
            f"{asked.model} is an artifact's id, and does not go with {given[0]}",
            "an id names one artifact, whatever it was made for",
            f"leave {given[0]} out, or name the model",
        )
    from vcc.engine.finding import stored_for
    from vcc.engine.request import settle

    return stored_for(settle(build_request(asked)), store)


def _given(asked: ModelOptions) -> list[str]:
    """The options that were given and tell artifacts of a model apart, by their first spelling."""
    values = {one.name: getattr(asked, one.name) for one in fields(asked)}
    given = [
        name
        for name, value in values.items()
        if name not in _NO_CHOICE and value is not None and value is not False and value != []
    ]
    return [_SPELLING.get(name, "--" + name.replace("_", "-")) for name in given]


_NO_CHOICE = frozenset({"model", "jobs", "keep", "trust_remote_code"})
_SPELLING = {"level": "-O", "config": "--compilation-config", "inputs": "--shape"}


def _stored(asked: ModelOptions, place: Place, *, run: bool, as_json: bool) -> None:
    from vcc.engine.verify import verify

    store = open_store(place)
    entry = _named(asked, store)
    loaded = store.load(entry, full=True)
    found, ran = verify(loaded), None
    if run:
        from vcc.engine.verify_run import run_goldens

        ran = run_goldens(loaded)
    if as_json:
        content = {
            "artifact": entry.artifact,
            "blobs": found.blobs,
            "size": found.size,
            "contents": dict(found.contents),
        }
        out_json(content if ran is None else content | {"run": ran.as_dict()})
        return
    counts = ", ".join(amount(count, name) for name, count in found.contents.items())
    whole = f"{amount(found.blobs, 'blobs')}, {size_text(found.size)}"
    out(f"{short(entry.artifact)} {entry.title}\nwhole: {whole}{f': {counts}' if counts else ''}")
    if ran is not None:
        out(_as_ran(ran))


def _as_ran(ran: Ran) -> str:
    one, checked = len(ran.checked) == 1, amount(len(ran.checked), "pieces")
    said = "computes what its golden says" if one else "compute what their goldens say"
    lines = [f"{ran.device}: {checked} {said}"]
    lines += [f"{piece[:12]} has no golden: {why}" for piece, why in ran.without.items()]
    return "\n".join(lines)


def _interpret(asked: ModelOptions, tokens: str | None, place: Place, *, as_json: bool) -> None:
    from vcc.engine.config.spellings import parse_sizes
    from vcc.engine.request import settle

    settled, store = settle(build_request(asked)), open_store(place)
    counts = () if tokens is None else parse_sizes(tokens, "--tokens")
    shown = events(quiet=as_json)
    try:
        from vcc.engine.verify_interpret import interpret

        found = interpret(settled, store, counts, shown)
    finally:
        shown.close()
    if as_json:
        out_json(found.as_dict())
    else:
        out(_as_text(found))


def _as_text(found: Interpreted) -> str:
    rows = [("step", "nodes of", "T", "B", "segments", "largest error")]
    rows += [
        (
            one.name,
            one.graph,
            str(one.tokens),
            str(one.seqs),
            str(one.segments),
            f"{one.error:.1e}",
        )
        for one in found.outcome.steps
    ]
    lines = [columns(rows), f"{found.target}: equal to the model in fp32"]
    if found.rebuilt is not None:
        id, count = found.rebuilt.artifact[:12], found.rebuilt.blobs
        lines.append(f"artifact {id}: {amount(count, 'blobs')} rebuilt byte by byte")
    return "\n".join(lines)
