"""Plain forwards beside eager torch and torch.compile: encoders and vision models.

    python bench_forwards.py
    python bench_forwards.py --prepare
    python bench_forwards.py --kinds bert --batches 1 --firsts bert

Random bf16 weights; 128 tokens a text, 224 x 224 pixels an image. The artifact of each cell has its
sizes fixed, so that it is one CUDA graph; one more has a batch that varies (`--varying`), with a
graph for each captured size. All peers compile at once (peer_forward.py), beside the artifacts.
Then products are recorded and chosen, and calls are timed one process after another:

* call: inputs lie on the device, outputs stay there, the host waits;
* host to host: inputs and outputs are arrays of the host.

The outputs of both sides are held to fp32 by the numbers rule. First answers are those of processes
of their own, from their start, with the artifact in the store and with torch.compile's cache warm.
`--prepare` writes models and artifacts and ends. Writes gpu-forwards.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import products
from common import TARGET, Done, ends_of, median, models_folder, publish, python, store, vcc
from forward_models import KINDS
from forward_rows import Cell, Told, errors, first_rows, place_of, rows_of
from held import Held

NAMED = ("bert", "minilm", "vit", "resnet")
COMPILERS = 4


def asked(cell: Cell) -> list[object]:
    """Model and options that say which artifact."""
    shapes = KINDS[cell.kind].shapes(cell.range or cell.batch)
    options = [word for shape in shapes for word in ("--shape", shape)]
    return [place_of(cell.kind), "--target", TARGET, "--dtype", "bf16", *options]


def written(kinds: Sequence[str]) -> None:
    """All models, side by side."""
    with ThreadPoolExecutor(len(kinds)) as pool:
        list(pool.map(lambda kind: python("forward_models.py", kind, place_of(kind)), kinds))


def built(cells: Sequence[Cell]) -> dict[Cell, Done]:
    """All artifacts, side by side; one that cannot be built is told by its row."""

    def one(cell: Cell) -> Done:
        return vcc("compile", *asked(cell), "--json", check=False, **store())

    artifacts = {(cell.kind, cell.range or cell.batch): cell for cell in cells}
    with ThreadPoolExecutor(len(artifacts)) as pool:
        found = dict(zip(artifacts, pool.map(one, artifacts.values()), strict=True))
    return {cell: found[cell.kind, cell.range or cell.batch] for cell in cells}


def started(cells: Sequence[Cell], options: argparse.Namespace, folder: Path) -> dict[Cell, Held]:
    """The peers of all cells with fixed sizes, compiling at once."""
    found = {}
    for number, cell in enumerate(one for one in cells if not one.range):
        place = folder / f"peer{number}"
        answers_of(place).mkdir()
        words = ["peer_forward.py", *cell.words, "--answers", answers_of(place)]
        found[cell] = Held.start(place, [*words, "--seconds", options.seconds], compilers())
    return found


def answers_of(peer: Path) -> Path:
    """The folder of outputs beside that of a peer."""
    return peer.with_name(f"{peer.name}-answers")


def compilers() -> dict[str, str]:
    """Where torch.compile keeps what it made, and how many processes it takes."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(models_folder() / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": str(COMPILERS),
    }


def played(cell: Cell, out: Path, seconds: float) -> Told:
    """What vcc's side prints; `error` says why nothing."""
    words = [*cell.words, "--out", out, "--seconds", seconds]
    done = python("play_forward.py", *words, check=False, **store())
    return {"error": ends_of(done.stderr, 400)} if done.code else dict(done.json())


def first_answers(cell: Cell, repeat: int) -> Told:
    """Seconds from process start: vcc's, and each peer's with its caches warm."""
    with tempfile.TemporaryDirectory() as place:
        runs = [played(cell, Path(place) / "out.npz", 0) for _ in range(repeat)]
    if bad := [one["error"] for one in runs if "error" in one]:
        return {"error": bad[0]}
    found: Told = {"vcc": median([one["first_answer_seconds"] for one in runs]), "runs": runs}
    for way in ("eager", "default"):
        done = python("peer_forward.py", *cell.words, "--first", way, check=False, **compilers())
        found[way] = ends_of(done.stderr, 300) if done.code else done.json()["seconds"]
    return found


def tuned(done: Mapping[Cell, Done]) -> dict[str, Told]:
    """Products recorded and chosen, by artifact; those that could not be built are left out."""
    found = {}
    for cell, one in done.items():
        if one.code == 0:
            found[str(cell)] = products.tuned(one)
    return found


def main() -> int:
    """Measure; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(NAMED))
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--varying", nargs="*", default=["minilm"], help="kinds, of 1 to the most")
    parser.add_argument("--firsts", nargs="*", default=["bert", "resnet"], help="kinds, of one row")
    parser.add_argument("--repeat", type=int, default=3, help="boots of vcc")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each timing")
    parser.add_argument("--patience", type=int, default=110, help="seconds for all compiles")
    parser.add_argument("--prepare", action="store_true")
    options = parser.parse_args()
    most = max(options.batches)
    cells = [Cell(kind, batch) for kind in options.kinds for batch in options.batches]
    ranges = [kind for kind in options.varying if kind in options.kinds and most > 1]
    cells += [Cell(kind, b, f"N@1-{most}") for kind in ranges for b in options.batches]
    written(options.kinds)
    if options.prepare:
        done = built(cells)
        print(json.dumps({str(cell): [one.code, one.seconds] for cell, one in done.items()}))
        return max(one.code for one in done.values())
    with tempfile.TemporaryDirectory() as place:
        until = time.monotonic() + options.patience
        held = started(cells, options, Path(place))
        try:
            return measured(cells, held, options, until)
        finally:
            for one in held.values():
                one.stop()


def measured(
    cells: Sequence[Cell], held: Mapping[Cell, Held], options: argparse.Namespace, until: float
) -> int:
    """Build and tune while peers compile; then time one after another, first answers at the end."""
    done = built(cells)
    for one in held.values():
        one.wait(until)
    choices = tuned(done)
    mine, others, rows = {}, {}, []
    for cell in cells:
        fixed = Cell(cell.kind, cell.batch)
        folder = answers_of(held[fixed].folder)
        mine[cell] = timed(cell, done[cell], folder, options.seconds)
        if fixed not in others:
            others[fixed] = held[fixed].measured()
        rows += rows_of(cell, mine[cell], others[fixed])
    firsts = {
        kind: first_answers(Cell(kind, min(options.batches)), options.repeat)
        for kind in options.firsts
        if kind in options.kinds
    }
    for kind, found in firsts.items():
        rows += first_rows(Cell(kind, min(options.batches)), found)
    what = (
        "plain forwards in bf16 with random weights: 128 tokens a text, 224 x 224 pixels an image"
    )
    details = {
        "vcc": {str(cell): found for cell, found in mine.items()},
        "peers": {str(cell): found for cell, found in others.items()},
        "first_answers": firsts,
        "tune": choices,
        "compile_seconds": {str(cell): round(one.seconds, 2) for cell, one in done.items()},
    }
    return publish("forwards", what, rows, details)


def timed(cell: Cell, done: Done, folder: Path, seconds: float) -> Told:
    """vcc's side of a cell, held to the numbers rule."""
    if done.code:
        return {"error": ends_of(done.stderr or done.stdout, 400)}
    out = folder / "vcc.npz"
    found = played(cell, out, seconds)
    if "error" not in found:
        there = (folder / "peer.npz").exists()
        found["rule"] = errors(cell, out, folder) if there else {"error": "no reference"}
    return found


if __name__ == "__main__":
    sys.exit(main())
