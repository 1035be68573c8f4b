"""The GEMM store of the benchmarks: filled before anything is timed, and what it then serves.

A store that serves nothing is a figure of another program, so it is a row with a limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from common import Done, Row, ends_of, models_folder, store, vcc

Told = dict[str, Any]


def tuned(built: Done) -> Told:
    """Record and choose the products of a compiled model; a failure is told, not raised.

    A device that others use may refuse memory for a moment: it is tried twice.

    Args:
        built: what `common.built` gave. Its artifact is tuned once: what came of it is kept beside
            the models, as other benchmarks on this machine have the same store.
    """
    artifact = str(built.json()["artifact"])
    kept = models_folder() / f"tuned-{artifact[:16]}.json"
    if kept.exists():
        found: Told = json.loads(kept.read_text())
        return found | {"seconds": 0.0}
    told = _tried(artifact)
    if not told["stored"]:
        told = _tried(artifact) | {"first": told}
    if told["stored"]:
        kept.write_text(json.dumps(told))
    else:
        print(f"THE GEMM STORE IS EMPTY: {told['trouble']}", file=sys.stderr, flush=True)
    return told


def _tried(artifact: str) -> Told:
    done = vcc("tune", artifact, "--json", check=False, **store())
    told: Told = {"seconds": round(done.seconds, 2), "said": ends_of(done.stderr, 300)}
    if done.code:
        return told | {"stored": 0, "trouble": ends_of(done.stderr or done.stdout)}
    return told | summary(done.json()["artifacts"][0])


def summary(tune: Mapping[str, Any]) -> Told:
    """Counts of what `vcc tune --json` says of an artifact."""
    answer, measured = tune["answer"] or {}, tune["measured"]
    routes = [one["route"] for one in measured]
    stored = answer.get("recorded", 0) + answer.get("kept", 0)
    refused = answer.get("refused", [])
    return {
        "stored": stored,
        "refused": [f"{one['shape']}: {one['why']}" for one in refused[:3]],
        "cublaslt": answer.get("cublaslt"),
        "self_test": answer.get("self_test"),
        "choices": {route: routes.count(route) for route in sorted(set(routes))},
        "without_entry": sum(one["stored_ns"] < 0 for one in measured),
        "trouble": tune["trouble"],
    }


def rows_of(told: Told) -> list[Row]:
    """That the store was filled."""
    note = str(told.get("trouble", "")).strip()[:200]
    return [Row("products in the GEMM store", told["stored"], "", 1, True, note)]


def served(told: Told, routes: Mapping[str, Mapping[str, int]]) -> list[Row]:
    """How many products of each step the store serves; none is missed where entries won.

    Args:
        told: of `tuned`.
        routes: step -> route -> products, of `vcc_player_gemms`.
    """
    won = told.get("choices", {}).get("cublaslt", 0)
    rows = []
    for step, found in routes.items():
        all_of = sum(found.values())
        note = ", ".join(f"{count} {route}" for route, count in sorted(found.items()))
        name = f"step of {step}: products from the GEMM store"
        rows.append(Row(name, found.get("store", 0), f"of {all_of}", note=note))
    if won:
        total = sum(found.get("store", 0) for found in routes.values())
        note = f"{won} of the choices are the store's"
        rows.append(Row("products from the GEMM store, all steps", total, "", 1, True, note))
    return rows
