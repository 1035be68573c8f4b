"""Cells of bench_forwards.py, and the rows that their figures become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, models_folder
from numpy.typing import NDArray

LIMITS = {"default": 1.0}
"""What a call may take beside torch.compile, where sizes are fixed."""

FIRST = 3.0
"""How many times sooner the first answer is there than that of a warm torch.compile."""

RULE = 1.25
"""Errors beside those of the same model in bf16 (docs: the numbers rule)."""

Told = dict[str, Any]
Errors = NDArray[np.float32]


@dataclass(frozen=True)
class Cell:
    """A model with a batch; `range` is that of an artifact whose batch varies."""

    kind: str
    batch: int
    range: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.batch}{' of ' + self.range if self.range else ''}"

    @property
    def words(self) -> list[object]:
        """What the processes of both sides are told."""
        words = ["--model", place_of(self.kind), "--kind", self.kind, "--batch", self.batch]
        return [*words, "--range", self.range] if self.range else words


def place_of(kind: str) -> Path:
    """A model's directory."""
    return models_folder() / f"forward-{kind}"


def errors(cell: Cell, mine: Path, folder: Path) -> Told:
    """The largest error of an answer as a share of the rule's bound.

    Args:
        cell: whose.
        mine: the outputs.
        folder: the references that the peer wrote.
    """
    with (
        np.load(mine) as one,
        np.load(folder / "exact.npz") as two,
        np.load(folder / "peer.npz") as three,
    ):
        found, exact, peer = (
            {name: each[name] for name in sorted(each)} for each in (one, two, three)
        )
    if found.keys() != exact.keys():
        return {"error": f"{len(found)} outputs, and not {len(exact)}"}
    shares: dict[str, list[float]] = {}
    for name, wanted in exact.items():
        if found[name].shape != wanted.shape:
            return {"error": f"output {name} has shape {list(found[name].shape)}"}
        ours, theirs = found[name] - wanted, peer[name] - wanted
        shares[name] = [round(one(ours) / (RULE * one(theirs)), 3) for one in (rms, largest)]
    every = [share for both in shares.values() for share in both]
    return {"worst": max(every) if np.isfinite(every).all() else None, "rms_and_largest": shares}


def rms(error: Errors) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(error, dtype=np.float64))))


def largest(error: Errors) -> float:
    """The largest."""
    return float(np.abs(error).max())


def rows_of(cell: Cell, mine: Told, other: Told) -> Iterator[Row]:
    """The figures of a cell, and their limits where sizes are fixed."""
    if "error" in mine:
        yield Row(f"{cell}: call", None, "us", 1.0, note=last_of(mine["error"]))
        return
    yield Row(f"{cell}: call", mine["call_us"], "us", note=said(mine["routes"]))
    yield Row(f"{cell}: host to host", mine["host_us"], "us")
    rule = mine["rule"]
    yield Row(
        f"{cell}: errors / numbers rule",
        rule.get("worst"),
        "",
        1.0,
        note=str(rule.get("error", rule.get("rms_and_largest", ""))),
    )
    for way in ("eager", "default", "overhead"):
        yield from compared(cell, way, mine, other.get(way, other))


def compared(cell: Cell, way: str, mine: Told, other: Told) -> Iterator[Row]:
    """vcc / one way of torch."""
    limit = None if cell.range else LIMITS.get(way)
    if "call_us" not in other:
        why = last_of(other.get("error", "not measured"))
        yield Row(f"{cell}: vcc / {way}", None, "", limit, note=why)
        return
    ratio = round(mine["call_us"] / other["call_us"], 3)
    note = f"{mine['call_us']:.0f} against {other['call_us']:.0f} us"
    yield Row(f"{cell}: vcc / {way}", ratio, "", limit, note=note)
    ratio = round(mine["call_us"] / other["in_a_row_us"], 3)
    yield Row(f"{cell}: vcc, waited for / {way} in a row", ratio)
    ratio = round(mine["host_us"] / other["host_us"], 3)
    yield Row(f"{cell}: vcc / {way}, host to host", ratio, "", limit)


def last_of(text: object) -> str:
    """The end of what a process said, in one line."""
    return " ".join(str(text).split())[-150:]


def said(routes: Mapping[str, int]) -> str:
    """Who computes how many products."""
    return ", ".join(f"{count} {route}" for route, count in sorted(routes.items()))


def first_rows(cell: Cell, found: Told) -> Iterator[Row]:
    """The first answers of a cell."""
    name = f"{cell}: process start to first answer"
    if "error" in found:
        yield Row(name, None, "s", note=last_of(found["error"]))
        return
    yield Row(name, found["vcc"], "s")
    for way, limit in (("eager", None), ("default", FIRST)):
        seconds = found[way]
        ratio = round(seconds / found["vcc"], 2) if isinstance(seconds, float) else None
        note = "" if ratio is not None else last_of(seconds)
        yield Row(f"{cell}: first answer of a warm {way} / vcc", ratio, "", limit, True, note)
    heavy = [name for one in found["runs"] for name in one["heavy"]]
    yield Row(f"{cell}: heavy modules imported", len(heavy), "", 0)
