"""What becomes of a piece's outputs in the step: a piece is compiled once for all of its calls."""

from __future__ import annotations

from collections.abc import Sequence

from vcc.engine.graphs.planner.operators import STRIDED, base_name, tensors_of
from vcc.engine.graphs.program import Program


def written_again(programs: Sequence[Program]) -> dict[str, frozenset[int]]:
    """For each piece the outputs that an operator writes later, in any of its calls."""
    found: dict[str, frozenset[int]] = {}
    for program in programs:
        written = {name for call in program.calls if call.kind == "op" for name in call.outs}
        for call in program.calls:
            if call.kind == "piece":
                again = frozenset(i for i, name in enumerate(call.outs) if name in written)
                found[call.target] = found.get(call.target, frozenset()) | again
    return found


def taken_as_rows(programs: Sequence[Program]) -> dict[str, frozenset[int]]:
    """For each piece the outputs that are only read by operators that take strided rows."""
    found: dict[str, frozenset[int]] = {}
    for program in programs:
        dense = _read_dense(program)
        for call in program.calls:
            if call.kind == "piece":
                fits = frozenset(i for i, name in enumerate(call.outs) if name not in dense)
                found[call.target] = found.get(call.target, fits) & fits
    return found


def _read_dense(program: Program) -> set[str]:
    """Values that somebody reads who takes dense tensors only."""
    dense = set(program.outputs)
    for call in program.calls:
        if call.kind == "piece":
            dense.update(str(name) for name in call.args if name not in call.outs)
        else:
            rows = STRIDED.get(base_name(call.target), frozenset())
            dense.update(value for name, value in tensors_of(call).items() if name not in rows)
    return dense


def giving_results(programs: Sequence[Program]) -> frozenset[str]:
    """The pieces whose outputs are results of a program, in any of their calls."""
    return frozenset(
        call.target
        for program in programs
        for call in program.calls
        if call.kind == "piece" and not set(program.outputs).isdisjoint(call.outs)
    )
