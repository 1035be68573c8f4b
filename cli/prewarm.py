"""vcc prewarm: build what a file lists, or say what of it is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vcc.cli import options
from vcc.cli.folding import folding
from vcc.cli.place import Place, open_store, takes_place

if TYPE_CHECKING:
    from vcc.cache.remote.base import Remote
    from vcc.cache.request import Entry
    from vcc.cache.store import Store
    from vcc.engine.prewarm.asked import Asked
    from vcc.engine.prewarm.matrix import Cell
    from vcc.engine.prewarm.run import Outcome, Step
    from vcc.engine.request import BuildRequest


@dataclass(frozen=True, slots=True)
class Signing:
    """The options that say how artifacts are signed, as `vcc sign` has them."""

    sign: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--sign", metavar="FILE|env", help="sign with this key; env: with VCC_SIGNING_KEY"
        ),
    ] = None
    builder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--builder", metavar="NAME", help="with --sign: who built it, as ci-main"),
    ] = None
    source_commit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--source-commit", metavar="SHA", help="with --sign: the full hash"),
    ] = None
    epoch: Annotated[
        int, typer.Option("--epoch", metavar="N", min=0, help="with --sign: only grows")
    ] = 0


@takes_place
@folding("signing", Signing)
def prewarm_command(
    place: Place,
    signing: Signing,
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="the list of builds; vcc.toml by default")
    ] = Path("vcc.toml"),
    check: Annotated[
        bool, typer.Option("--check", help="build nothing; exit 1 if anything is missing")
    ] = False,
    shard: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--shard", metavar="I/N", help="only part I of N, from 1; told by key"),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--budget", metavar="30m", help="start no build that would end later"),
    ] = None,
    push: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--push", metavar="URL", help="push every artifact of the list to a remote"),
    ] = None,
    allow_vendor: Annotated[
        bool,
        typer.Option("--allow-vendor", help="push kernels of NVIDIA's libraries to a public place"),
    ] = False,
    jobs: options.Jobs = 0,
    github: Annotated[
        bool,
        typer.Option("--github", help="annotations and a summary, as GitHub's runners read them"),
    ] = False,
    json: options.Json = False,
) -> None:
    """Build every artifact that a file lists and the store lacks.

    One that fails does not stop the others: the exit code is 10 then.
    """
    from vcc.cli.prewarm_report import annotated, report
    from vcc.engine.prewarm.asked import WHOLE, Shard, ask
    from vcc.engine.prewarm.file import read_file

    _check_together(check, push, signing, budget)
    part, seconds = WHOLE if shard is None else Shard.parse(shard), _seconds(budget)
    store = open_store(place)
    with annotated(file, github=github, as_json=json):
        asked = ask(str(file), read_file(file), lambda cell: _request(file, cell, jobs))
    mine = tuple(one for one in asked if part.has(one))
    with _after(store, signing, push, allow_vendor) as after:
        build = None if check else _builder(file, place, store, jobs)
        outcomes = _prewarmed(store, mine, build, after, seconds, quiet=json)
    report(file, outcomes, others=len(asked) - len(mine), github=github, as_json=json)


def _prewarmed(
    store: Store,
    asked: tuple[Asked, ...],
    build: Callable[[Asked], str] | None,
    after: tuple[Step, ...],
    budget: float | None,
    *,
    quiet: bool,
) -> tuple[Outcome, ...]:
    from vcc.cli.console import err
    from vcc.engine.prewarm.run import Prewarm

    def told(name: str) -> None:
        if not quiet:
            err(f"building {name}")

    return Prewarm(store, build, after, budget, told).run(asked)


def _request(file: Path, cell: Cell, jobs: int) -> BuildRequest:
    from vcc.cli.prewarm_options import model_options
    from vcc.cli.request import build_request

    return build_request(model_options(file, cell, jobs))


def _builder(file: Path, place: Place, store: Store, jobs: int) -> Callable[[Asked], str]:
    from vcc.cli.prewarm_options import words_of
    from vcc.engine.prewarm.apart import compile_apart

    return lambda asked: compile_apart([*words_of(file, asked.cell, jobs), *place.words(store)])


@contextmanager
def _after(
    store: Store, signing: Signing, push: str | None, allow_vendor: bool
) -> Iterator[tuple[Step, ...]]:
    """What is done with each artifact: first signed, so that the signature is pushed too."""
    from vcc.engine.prewarm.run import Step

    steps = [Step("sign", _signer(store, signing))] if signing.sign is not None else []
    if push is None:
        yield tuple(steps)
        return
    from vcc.cli.carried import opened_remote

    with opened_remote(push) as remote:
        yield (*steps, Step("push", _pusher(store, remote, allow_vendor)))


def _signer(store: Store, signing: Signing) -> Callable[[Entry], str]:
    from dataclasses import replace

    from vcc.cache.trust.secretkey import load_secret
    from vcc.cache.trust.signature import Terms
    from vcc.cache.trust.signing import NotOurs, sign_entry

    key = load_secret(None if signing.sign in (None, "env") else Path(signing.sign), None)
    terms = Terms(signing.builder or "", signing.source_commit or "", {}, signing.epoch, 0)
    own = replace(store, lower=())

    def sign(entry: Entry) -> str:
        try:
            sign_entry(own, entry, key, terms)
        except NotOurs as error:  # what was pulled keeps the signatures that it came with
            return f"not signed: {error.why}"
        return f"signed by key {key.public[:12]}"

    return sign


def _pusher(store: Store, remote: Remote, allow_vendor: bool) -> Callable[[Entry], str]:
    from vcc.cache.remote.patience import BY_HAND, Patience
    from vcc.cache.remote.push import Push, push_stored
    from vcc.cli.push import check_vendor

    def push(entry: Entry) -> str:
        check_vendor(store, entry, remote, allow_vendor)
        done = push_stored(Push(remote, Patience(BY_HAND)), store, entry)
        return f"pushed to {remote.url}" if done.new else f"there already: {remote.url}"

    return push


def _check_together(check: bool, push: str | None, signing: Signing, budget: str | None) -> None:
    from vcc.cache.errors import UsageError

    given = {"--push": push, "--sign": signing.sign, "--budget": budget}
    named = next((name for name, value in given.items() if value is not None), None)
    if check and named is not None:
        raise UsageError(f"--check does not go with {named}", "it looks, and does nothing")
    if signing.sign is None and (signing.builder or signing.source_commit or signing.epoch):
        raise UsageError(
            "--builder, --source-commit and --epoch go with --sign", "nothing is signed without"
        )


def _seconds(budget: str | None) -> float | None:
    if budget is None:
        return None
    from vcc.cache.care.filters import DURATIONS, parse_duration
    from vcc.cache.errors import UsageError

    try:
        return parse_duration(budget.strip())
    except ValueError as error:
        raise UsageError(f"--budget {budget} is not a duration", "", DURATIONS) from error
