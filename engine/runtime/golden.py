"""Check piece goldens at boot: does the loaded code compute here what it computed when built?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from vcc.engine.graphs.drawn import draw_arguments, poison
from vcc.engine.graphs.golden import Golden, WrongResult, exceeds
from vcc.engine.graphs.program import Program
from vcc.engine.runtime.settings import Boot
from vcc.engine.torch_shim.aoti_runner import RunPiece

BUDGET = 64 << 20
"""Bytes of arguments that the one golden of a normal boot may take."""


def check_goldens(boot: Boot, program: Program, pieces: Mapping[str, RunPiece]) -> None:
    """Check no golden, one, or all.

    One: that of the piece called most often whose arguments are small; a boot must stay quick.

    Raises:
        WrongResult: a piece's result is outside its golden's bound.
    """
    if boot.golden == "off":
        return
    checked = 0
    for name, golden in _goldens(boot, program):
        if boot.golden == "one" and golden.argument_bytes > BUDGET:
            continue
        check_golden(name, golden, pieces[name])
        checked += 1
        if boot.golden == "one":
            return
    if checked < len(pieces):
        boot.events.note(f"golden: {len(pieces) - checked} of {len(pieces)} pieces not checked")


def _goldens(boot: Boot, program: Program) -> Iterator[tuple[str, Golden]]:
    counts = Counter(call.target for call in program.calls if call.kind == "piece")
    for name, _ in counts.most_common():
        if f"golden/{name}" in boot.loaded.manifest.blobs:
            yield name, Golden.decode(boot.loaded.read(f"golden/{name}"))


def check_golden(name: str, golden: Golden, run: RunPiece) -> None:
    """Call a piece on its golden's arguments.

    Args:
        name: the piece's id.
        golden: its golden.
        run: the piece.

    Raises:
        WrongResult: an output is outside its bound.
    """
    arguments = draw_arguments(name, golden.arguments, golden.below)
    outs = arguments[len(arguments) - len(golden.references) :]
    poison(outs)
    run(arguments)
    for out, reference, bound in zip(outs, golden.references, golden.bounds, strict=True):
        if why := exceeds(out.float().numpy(), reference, bound):
            raise WrongResult(
                f"piece {name[:12]} computes something else on this machine",
                why,
                "rebuild it here: vcc compile",
            )
