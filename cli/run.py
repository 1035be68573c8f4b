"""vcc run: boot a model's artifact and answer prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.boot_report import BootReport
from vcc.cli.console import events
from vcc.cli.place import Place, open_store, takes_place
from vcc.cli.request import ModelOptions, build_request, takes_model

if TYPE_CHECKING:
    from vcc.cli.ways import Report, Said
    from vcc.engine.runtime.batch_trace import BatchTrace
    from vcc.engine.session import Session


@takes_model("keep")
@takes_place
def run_command(
    asked: ModelOptions,
    place: Place,
    prompt: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--prompt", "-p", metavar="TEXT", help="a prompt (repeatable)"),
    ] = None,
    prompts: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="prompts, one a line or a JSON list; - reads standard input",
        ),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="put each prompt into the model's chat template")
    ] = False,
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio", help="answer JSON lines of standard input as they come, until its end"
        ),
    ] = False,
    max_new_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--max-new-tokens", metavar="N", help="most tokens of an answer"),
    ] = None,
    temperature: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--temperature", metavar="T", help="0 takes the most likely token"),
    ] = None,
    top_p: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--top-p", metavar="P", help="keep the likeliest tokens that reach P"),
    ] = None,
    top_k: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--top-k", metavar="K", help="keep the K likeliest tokens; 0 keeps all"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="seed of the sampling")] = 0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="go on after an end-of-sequence token")
    ] = False,
    require_warm: Annotated[
        bool, typer.Option("--require-warm", help="a miss is an error; compile nothing")
    ] = False,
    require_exact: Annotated[
        bool,
        typer.Option(
            "--require-exact", help="take an artifact only if a build here would make just that"
        ),
    ] = False,
    golden: Annotated[
        str,
        typer.Option(
            "--golden",
            metavar="|".join(options.GOLDEN),
            help="which pieces to check against their goldens at boot",
            autocompletion=options.complete(options.GOLDEN),
        ),
    ] = "one",
    report: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--report", metavar="FILE", help="write the JSON report to FILE"),
    ] = None,
    trace_batches: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--trace-batches", metavar="FILE", help="write a JSON line a step to FILE"),
    ] = None,
    kv_memory: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--kv-memory",
            metavar="20GiB|0.9",
            help="most memory of a GPU's KV cache: bytes, or a share of what weights leave free",
        ),
    ] = None,
    lora: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--lora",
            metavar="NAME=DIR",
            help="an adapter (repeatable); with one, prompts have it, else each names its own",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Boot a model and answer prompts.

    Without an artifact it builds one first and says why, unless --require-warm forbids it.
    vcc run -- CMD runs a program with its Inductor and Triton caches; vcc run --help -- tells how.
    """
    from vcc.engine.monitor import Ledger, process_start

    ledger = Ledger(process_start())
    ledger.charge("import")  # the interpreter and this command line
    options.check_choice("--golden", golden, options.GOLDEN)
    with BootReport(report, ledger) as written:
        with ledger.phase("resolve"):
            from vcc.engine.adapters import parse_adapters
            from vcc.engine.config.kv_memory import DEFAULT_KV_MEMORY, KvMemory
            from vcc.engine.request import settle

            cache = DEFAULT_KV_MEMORY if kv_memory is None else KvMemory.parse(kv_memory)
            adapters = parse_adapters(lora or ())
            asked = replace(asked, enable_lora=asked.enable_lora or bool(adapters))
            settled, store = settle(build_request(asked)), open_store(place)
        with ledger.phase("import"):
            from vcc.engine.config.environment import import_numpy

            import_numpy()
            from vcc.cli.ways import Said
            from vcc.engine.runtime.defaults import Overrides
            from vcc.engine.session import Session
            from vcc.engine.trail import WatchedEvents
        shown = events(quiet=json)
        written.watched = WatchedEvents(shown)
        for line in settled.overruled:
            written.watched.note(line)
        batches = None if trace_batches is None else _open_trace(trace_batches)
        session = written.session = Session(
            settled,
            store,
            golden,
            require_warm,
            written.watched,
            ledger,
            batches=batches,
            kv_memory=cache,
            exact=require_exact,
            adapters=adapters,
        )
        overrides = Overrides(temperature, top_k, top_p, max_new_tokens, seed, ignore_eos)
        alone = adapters[0][0] if len(adapters) == 1 else ""
        said = Said(tuple(prompt or ()), prompts, chat, overrides, stdio, alone)
        try:
            found = written.found = _went(session, said, as_json=json)
        finally:
            shown.close()
            if batches is not None:
                batches.close()
    _record_beside(session, found)


def _went(session: Session, said: Said, *, as_json: bool) -> Report:
    from vcc.cache.errors import MissingArtifact
    from vcc.cli.ways import go

    try:
        return go(session, said, as_json=as_json)
    except MissingArtifact as missing:
        from vcc.cli.not_warm import explained  # a boot that is warm never asks

        raise explained(session, missing, as_json=as_json) from missing


def _record_beside(session: Session, found: Report) -> None:
    """After the first run on a GPU: fill the site's store of matrix products."""
    if not getattr(found, "lacking", False):
        return
    from vcc.cli.console import note
    from vcc.engine.tune.after_run import record_beside

    started = record_beside(session.store.root, found.artifact)
    if started:
        note(started)


def _open_trace(file: Path) -> BatchTrace:
    """Before anything is booted, so that a place that cannot be written costs nothing."""
    from vcc.engine.runtime.batch_trace import BatchTrace

    return BatchTrace(file)
