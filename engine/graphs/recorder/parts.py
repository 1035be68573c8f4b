"""The parts of a captured step: what runs between breaks, and the breaks; free of torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vcc.cache.errors import GraphError
from vcc.engine.config.op_names import named_in
from vcc.engine.graphs.recorder.draft import Draft, read_draft
from vcc.engine.graphs.table.types import SegmentKind

Held = TypeVar("Held")


@dataclass(frozen=True, slots=True)
class Part(Generic[Held]):
    """A run of nodes: a piece, or an operator at which the step is broken; `held` is its graph."""

    kind: SegmentKind
    name: str
    held: Held


WHOLE = "recorded"
"""Name of what no break divides."""


class Parting(Generic[Held]):
    """Begins another graph where a break begins, and where it ends.

    Args:
        breaking: operators, `ns::op` or `ns::op.overload`.
        begin: begins a graph.
        end: ends it.
    """

    def __init__(
        self, breaking: Sequence[str], begin: Callable[[], Held], end: Callable[[Held], None]
    ) -> None:
        self._breaking = frozenset(breaking)
        self._begin, self._end = begin, end
        self._parts: list[Part[Held]] = []
        self._held: Held | None = None

    def run(self, step: Callable[[], None]) -> tuple[Part[Held], ...]:
        """The parts of a step that hands its operator calls to `hear`.

        Raises:
            Exception: what the step raised; the graph that it was in is ended.
        """
        self._held = self._begin()
        try:
            step()
        except BaseException:
            with suppress(Exception):
                if self._held is not None:
                    self._end(self._held)
            raise
        self._close(SegmentKind.PIECE, WHOLE)
        return tuple(self._parts)

    def hear(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator, in a graph of its own if it is a break."""
        if not named_in(op.name(), self._breaking):
            return op(*args, **kwargs)
        self._close(SegmentKind.PIECE, WHOLE)
        self._held = self._begin()
        result = op(*args, **kwargs)
        self._close(SegmentKind.OP, str(op.name()).partition(".")[0])
        self._held = self._begin()
        return result

    def _close(self, kind: SegmentKind, name: str) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._end(held)
            self._parts.append(Part(kind, name, held))


def parts_text(parts: Sequence[Part[str]]) -> str:
    """Parts as JSON; each holds the description of its graph."""
    rows = [
        {"kind": part.kind.name, "name": part.name, "graph": json.loads(part.held)}
        for part in parts
    ]
    return json.dumps(rows)


def read_parts(text: str) -> tuple[Part[Draft], ...]:
    """The inverse of `parts_text`; parts without nodes are left out.

    Raises:
        GraphError: a node that a table cannot hold, or nothing was captured.
    """
    found = tuple(
        Part(SegmentKind[row["kind"]], row["name"], read_draft(json.dumps(row["graph"])))
        for row in json.loads(text)
    )
    kept = tuple(part for part in found if part.held.nodes)
    if not kept:
        raise GraphError("nothing was captured", "the step launches nothing on the GPU")
    return kept
