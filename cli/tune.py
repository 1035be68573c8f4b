"""vcc tune: record matrix products of artifacts on this GPU, and choose how each is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from msgspec import to_builtins

from vcc.cli import options
from vcc.cli.console import columns, events, out, out_json, size_text
from vcc.cli.stored import find_entry

if TYPE_CHECKING:
    from vcc.cache.request import Entry
    from vcc.cache.store import Store
    from vcc.engine.tune.command import Tuned

PLAYER = "Player"


def tune_command(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[ID|MODEL]...",
            help="artifacts or models; all GPU artifacts in the store by default",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--rows",
            metavar="1,2,4",
            help="row counts; by default those of the artifact's graphs and of prefill",
        ),
    ] = None,
    device: Annotated[
        int, typer.Option("--device", metavar="N", min=0, help="which GPU of this machine")
    ] = 0,
    no_measure: Annotated[
        bool, typer.Option("--no-measure", help="record only; time nothing, choose nothing")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="record also what is stored already")
    ] = False,
    cache_dir: options.CacheDir = None,
    json: options.Json = False,
) -> None:
    """Record cuBLASLt's matrix products on this GPU and choose between them and Triton's.

    The products are kept in the store and serve all models; `vcc run` then needs no cuBLASLt.
    """
    from vcc.cache.store import Store
    from vcc.engine.tune.command import Wish, tune
    from vcc.engine.tune.store import GemmStore

    store = Store.open(cache_dir)
    wish = Wish(_rows(rows), not no_measure, again, device)
    shown = events(quiet=json)
    try:
        gemms = GemmStore(store.root)
        entries = _entries(store, names, shown.note)
        found = [tune(gemms, store.load(entry), wish, shown) for entry in entries]
    finally:
        shown.close()
    if json:
        out_json({"artifacts": [to_builtins(one) for one in found]})
    else:
        out("\n\n".join(_text(one) for one in found))


def _entries(store: Store, names: Sequence[str] | None, note: Callable[[str], None]) -> list[Entry]:
    """The artifacts to tune for; those of other devices are refused when named, else left out."""
    from vcc.cache.errors import DeviceError, MissingArtifact
    from vcc.engine.runtime.host import why_not

    named = [find_entry(store, name, loader=PLAYER) for name in names or ()]
    stored = (one for one in store.entries() if dict(one.host_rules).get("loader") == PLAYER)
    found = {one: why_not(dict(one.host_rules)) for one in named or stored}
    for entry, why in found.items():
        if why and names:
            hint = "build it for this device: vcc compile MODEL"
            raise DeviceError(f"{entry.title} cannot be tuned here", why, hint)
        if why:
            note(f"left out: {entry.title}: {why}")
    entries = [entry for entry, why in found.items() if not why]
    if not entries:
        raise MissingArtifact(
            "there is no GPU artifact to tune for",
            f"not in {store.root}",
            "build one first: vcc compile MODEL --target sm_90",
        )
    return entries


def _rows(text: str | None) -> tuple[int, ...]:
    from vcc.cache.errors import UsageError

    parts = [] if text is None else text.split(",")
    if any(not part.strip().isdecimal() or int(part) < 1 for part in parts):
        raise UsageError(f'cannot read --rows "{text}"', "", "write numbers from 1: --rows 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def _text(one: Tuned) -> str:
    return "\n".join([one.title, *_recording(one), *_unstorable(one), *_choices(one)])


def _unstorable(one: Tuned) -> list[str]:
    return [f"not in the store: {refused.shape}: {refused.why}" for refused in one.unstorable]


def _recording(one: Tuned) -> list[str]:
    lines = [one.trouble] if one.trouble else []
    if one.answer is None:
        return lines
    answer = one.answer
    done = f"{answer.recorded} products recorded in {answer.seconds:.1f} s"
    made = f"{done}, {size_text(answer.bytes)}" if answer.recorded else "nothing to record"
    kept = f"; {answer.kept} were stored" if answer.kept else ""
    lines.append(f"{answer.gpu}, cuBLASLt {answer.cublaslt}: {made}{kept}")
    lines += [f"refused: {refused.shape}: {refused.why}" for refused in answer.refused]
    return lines


def _choices(one: Tuned) -> list[str]:
    if not one.measured:
        return []
    rows: list[tuple[str, ...]] = [("product", "route", "cuBLASLt µs", "Triton µs")]
    rows += [(str(m.shape), m.route, _us(m.stored_ns), _us(m.variant_ns)) for m in one.measured]
    return [columns(rows)]


def _us(nanoseconds: int) -> str:
    return "-" if nanoseconds < 0 else f"{nanoseconds / 1e3:.1f}"
