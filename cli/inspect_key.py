"""vcc inspect key: the three keys of an artifact, or of what a build of a model would make."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from vcc.cli import options
from vcc.cli.console import columns, out, out_json
from vcc.cli.place import Place, open_store, takes_place
from vcc.cli.request import ModelOptions, build_request, takes_model
from vcc.cli.stored import find_by_id

if TYPE_CHECKING:
    from vcc.cache.key import Key
    from vcc.cache.request import Entry
    from vcc.cache.store import Store

BEFORE_A_BUILD = "a build adds the digests of the constants that it computes"


@takes_model("jobs", "keep")
@takes_place
def inspect_key(asked: ModelOptions, place: Place, json: options.Json = False) -> None:
    """Show the request, the code key and the plan key of an artifact (6 digits of its id do) or
    of a model, and what answers a model's request.
    """
    store = open_store(place)
    entry = find_by_id(store, asked.model)
    if entry is not None:
        _of_artifact(store, entry, as_json=json)
    else:
        _of_model(asked, store, as_json=json)


def _of_artifact(store: Store, entry: Entry, *, as_json: bool) -> None:
    from vcc.cache.key import Key

    manifest = store.load(entry).manifest
    keys = {
        "request": Key(manifest.request),
        "code key": Key(manifest.code_key),
        "plan key": Key(manifest.plan_key),
    }
    if as_json:
        rules = manifest.host_rules
        out_json({"artifact": entry.artifact, "keys": _keys_dict(keys), "host_rules": rules})
        return
    out(f"{entry.artifact}\n{manifest.title}")
    for name, key in keys.items():
        out(_key_text(name, key))
    out(_section("host rules", manifest.host_rules))


def _of_model(asked: ModelOptions, store: Store, *, as_json: bool) -> None:
    from dataclasses import replace

    from vcc.cache.key import Key
    from vcc.engine.compile.keys import keys_here
    from vcc.engine.finding import find
    from vcc.engine.request import look_up, request_pairs, settle
    from vcc.engine.session import Session

    settled = settle(build_request(asked))
    base, stated = look_up(settled)
    pairs, open_fields = request_pairs(settled)
    left_open = {label: pairs[label] for label in open_fields if label not in stated}
    identity = dict(settled.request.source.model_key())
    found = find(Session(settled, replace(store, remote=None)))
    hit = found.entries[0].artifact if found.entries else None
    made = keys_here(settled)
    keys = {"request": Key.of(pairs), "code key": Key.of(made.code), "plan key": Key.of(made.plan)}
    if as_json:
        answer: dict[str, object] = {"digest": base.digest.hex, "base": dict(base)}
        answer |= {"stated": dict(stated), "open": left_open, "model": identity}
        answer |= {"keys": _keys_dict(keys), "hit": hit, "why": found.why}
        out_json(answer)
        return
    out(base.digest.hex)
    out(_section("base (stated in every look-up)", dict(base)))
    out(_section("model (what model.digest is made of)", identity))
    out(_section("stated by these options", stated), end="\n" if stated else "")
    out(_section("left open (a build would use)", left_open))
    out(_key_text("code key", keys["code key"]) + f"\n  {BEFORE_A_BUILD}")
    out(_key_text("plan key", keys["plan key"]))
    out(f"\nhit: artifact {hit[:12]}" if hit else f"\nmiss: {found.why}")


def _keys_dict(keys: Mapping[str, Key]) -> dict[str, object]:
    return {
        name: {"digest": key.digest.hex, "text": key.text, "entries": dict(key)}
        for name, key in keys.items()
    }


def _key_text(name: str, key: Key) -> str:
    """A key with its labels in groups, the heaviest first."""
    from vcc.cache.factors import factor_of

    ordered = sorted(key, key=lambda pair: (-factor_of(pair[0]).weight, factor_of(pair[0]).group))
    width = max((len(label) for label, _ in key), default=0)
    lines = [f"\n{name} {key.digest.hex}"]
    for group, pairs in groupby(ordered, key=lambda pair: factor_of(pair[0]).group):
        lines.append(f"  {group}")
        lines += [f"    {label.ljust(width)}  {value}".rstrip() for label, value in pairs]
    return "\n".join(lines)


def _section(title: str, pairs: Mapping[str, str]) -> str:
    if not pairs:
        return ""
    rows = columns(sorted(pairs.items())).splitlines()
    return "\n".join((f"\n{title}", *(f"  {row}" for row in rows)))
