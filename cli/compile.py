"""vcc compile: build the artifact of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vcc.cache.words import amount
from vcc.cli.console import events, out, out_json, size_text
from vcc.cli.list_models import list_models as list_built_in
from vcc.cli.op_report import op_lines
from vcc.cli.pass_report import pass_lines
from vcc.cli.place import Place, open_store, takes_place
from vcc.cli.request import ModelOptions, build_request, takes_model

if TYPE_CHECKING:
    from vcc.cache.store import Store
    from vcc.engine.monitor import Counters
    from vcc.engine.request import Built, Settled


@takes_model()
@takes_place
def compile_command(
    asked: ModelOptions,
    place: Place,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be built and why, build nothing")
    ] = False,
    fail_on_miss: Annotated[
        bool, typer.Option("--fail-on-miss", help="with --dry-run: exit 1 if anything is missing")
    ] = False,
    list_models: Annotated[
        bool,
        typer.Option(
            "--list-models",
            callback=list_built_in,
            help="print the architectures that are built in",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", is_eager=True, help="one JSON object on standard output")
    ] = False,
) -> None:
    """Build and store the artifact of a model."""
    del list_models  # its callback has done it
    from vcc.engine.request import settle

    if fail_on_miss and not dry_run:
        from vcc.cache.errors import UsageError

        raise UsageError("--fail-on-miss goes with --dry-run", "without it a miss is built")
    settled, store = settle(build_request(asked)), open_store(place)
    if dry_run:
        from vcc.cli.dry_run import dry_run as forecast

        forecast(settled, store, as_json=json, fail_on_miss=fail_on_miss)
    else:
        _build(settled, store, as_json=json)


def _build(settled: Settled, store: Store, *, as_json: bool) -> None:
    from vcc.cache.errors import StorageError
    from vcc.engine.monitor import Counters
    from vcc.engine.request import check_buildable

    check_buildable(settled)
    counters, shown = Counters(), events(quiet=as_json)
    for line in settled.overruled:
        shown.note(line)
    try:
        from vcc.engine.pipeline import build

        built = build(settled.request, store, shown, counters)
        for line in built.loaded.manifest.info.get("overruled", ()):
            shown.note(line)
    finally:
        shown.close()
    if built.entry is None:
        # To store is what the command is for; `run` would go on with the artifact in memory.
        raise StorageError(
            "the artifact was built but not stored",
            built.trouble,
            "choose another place with --cache-dir or VCC_CACHE_DIR",
        )
    if as_json:
        out_json(_as_dict(built, settled, counters))
    else:
        out(_as_text(built, counters))


def _as_dict(built: Built, settled: Settled, counters: Counters) -> dict[str, object]:
    manifest = built.loaded.manifest
    return {
        "artifact": None if built.entry is None else built.entry.artifact,
        "title": manifest.title,
        "reused": built.reused,
        "size": manifest.size,
        "blobs": len(manifest.blobs),
        "reasons": _reasons(settled),
        "counters": counters.as_dict(),
        "info": manifest.info,
    }


def _as_text(built: Built, counters: Counters) -> str:
    manifest, entry = built.loaded.manifest, built.entry
    state = "already there" if built.reused and not built.planned else "stored"
    unique = counters["unique_pieces"]
    made = f"{unique} unique piece{'s' * (unique != 1)}, {counters['compiles']} compiled"
    size = f"{size_text(manifest.size)} in {amount(len(manifest.blobs), 'blobs')}"
    name = "" if entry is None else entry.artifact[:12]
    text = f"{state}: {manifest.title}\nartifact {name}: {size}"
    passes, ops = manifest.info.get("passes"), op_lines(manifest.info.get("ops"))
    return (
        text
        + (", all there already" * built.planned if built.reused else f", {made}")
        + (f"\npasses\n{pass_lines(passes)}" if passes else "")
        + (f"\ncustom ops\n{ops}" if ops else "")
    )


def _reasons(settled: Settled) -> list[dict[str, str]]:
    names = ("field", "was", "now", "why")
    return [{name: getattr(one, name) for name in names} for one in settled.reasons]
