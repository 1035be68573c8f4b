"""A step in parts: rows W6 and W7, on operators that really run, with graphs that only count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.graphs.recorder import capturing
from vcc.engine.graphs.recorder.decoder_plan import broken_of, decoder_recording, descriptors_of
from vcc.engine.graphs.recorder.parts import Part, Parting
from vcc.engine.graphs.recorder.plan import Descriptor, Recording
from vcc.engine.models.source import open_source
from vcc.engine.runtime.batch import StepLimits
from vcc.engine.torch_shim.dispatch_mode import heard


@dataclass
class Graphs:
    """Stands in for the driver: one capture at a time, each with the operators that it saw."""

    seen: list[list[str]] = field(default_factory=list)
    under_way: list[int] = field(default_factory=list)

    def begin(self) -> int:
        if self.under_way:
            raise RuntimeError("a capture begins inside another one")
        self.seen.append([])
        self.under_way.append(len(self.seen) - 1)
        return len(self.seen) - 1

    def end(self, graph: int) -> None:
        assert self.under_way.pop() == graph


def run(
    step: Callable[[], object], breaking: tuple[str, ...], graphs: Graphs | None = None
) -> tuple[tuple[Part[int], ...], Graphs]:
    found = graphs or Graphs()
    parting = Parting(breaking, found.begin, found.end)

    def listened() -> None:
        with torch.no_grad(), heard(parting.hear):
            step()

    return parting.run(listened), found


def form(parts: tuple[Part[int], ...]) -> str:
    return "".join("G" if part.kind.name == "PIECE" else "E" for part in parts)


def test_w6_a_break_has_a_graph_of_its_own_between_those_of_its_neighbours() -> None:
    x, out = torch.ones(4), []

    def step() -> None:
        out.append(torch.nn.functional.gelu(x + 1) * 2)

    parts, graphs = run(step, ("aten::gelu",))
    assert form(parts) == "GEG"
    assert [part.name for part in parts] == ["recorded", "aten::gelu", "recorded"]
    assert [part.held for part in parts] == [0, 1, 2]
    assert not graphs.under_way
    assert torch.equal(out[0], torch.nn.functional.gelu(x + 1) * 2)


def test_breaks_side_by_side_have_an_empty_part_between_them() -> None:
    """It is left out when the graphs are read: it launches nothing."""
    parts, _ = run(lambda: torch.relu(torch.ones(2)).sigmoid().tanh(), ("aten::relu", "aten::tanh"))
    assert form(parts) == "GEGEG"
    beside, _ = run(lambda: torch.relu(torch.ones(2)).tanh(), ("aten::relu", "aten::tanh"))
    assert form(beside) == "GEGEG"


def test_a_step_without_breaks_is_one_graph() -> None:
    parts, _ = run(lambda: torch.ones(2) + 1, ("aten::gelu",))
    assert form(parts) == "G"


@pytest.mark.parametrize("breaking", [(), ("aten::relu",)])
def test_w7_an_error_ends_its_graph_and_nothing_is_left(
    breaking: tuple[str, ...],
) -> None:
    graphs = Graphs()

    def failing() -> None:
        torch.relu(torch.ones(2))
        raise ValueError("the model failed")

    with pytest.raises(ValueError, match="the model failed"):
        run(failing, breaking, graphs)
    assert not graphs.under_way
    assert form(run(lambda: torch.relu(torch.ones(2)), ("aten::relu",), graphs)[0]) == "GEG"


def test_w7_a_break_that_fails_ends_its_graph() -> None:
    graphs = Graphs()
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        run(lambda: torch.mm(torch.ones(2, 3), torch.ones(2, 3)), ("aten::mm",), graphs)
    assert not graphs.under_way


def test_w7_a_capture_inside_another_one_is_an_error_that_leaves_nothing() -> None:
    graphs = Graphs()

    def nested() -> None:
        run(lambda: torch.ones(2), ("aten::relu",), graphs)

    with pytest.raises(RuntimeError, match="inside another one"):
        run(nested, ("aten::relu",), graphs)
    assert not graphs.under_way


def test_w7_another_thread_is_not_heard() -> None:
    def step() -> None:
        other = threading.Thread(target=lambda: torch.relu(torch.ones(2)))
        other.start()
        other.join()

    assert form(run(step, ("aten::relu",))[0]) == "G"


LIMITS = StepLimits(8, 4, 16, 16, 4, 64, 8)


def recording(mode: GraphMode) -> Recording:
    config = CompilationConfig(
        mode=CompileMode.NO_COMPILATION,
        cuda_graph_mode=mode,
        capture_sizes=(2, 8),
        splitting_ops=("vcc::kv_write", "vcc::paged_attention"),
    )
    return decoder_recording(open_source("demo").spec, {"w": (4, 4)}, {}, "float32", LIMITS, config)


MIXED = (Descriptor(8, 4, False), Descriptor(2, 2, False))
DECODE = (Descriptor(2, 2, True),)


@pytest.mark.parametrize(
    ("mode", "broken", "whole"),
    [
        (GraphMode.PIECEWISE, MIXED, ()),
        (GraphMode.FULL_AND_PIECEWISE, MIXED, DECODE),
        (GraphMode.FULL, (), MIXED),
        (GraphMode.FULL_DECODE_ONLY, (), DECODE),
    ],
)
def test_piecewise_graphs_are_recorded_in_parts_and_full_ones_whole(
    mode: GraphMode, broken: tuple[Descriptor, ...], whole: tuple[Descriptor, ...]
) -> None:
    found = recording(mode)
    assert found.descriptors == (*broken, *whole)
    assert (found.broken, bool(found.breaking)) == (broken, bool(broken))
    assert all(found.breaks(one) == ("vcc::kv_write", "vcc::paged_attention") for one in broken)
    assert not any(found.breaks(one) for one in whole)
    assert Recording.parse(found.text()) == found
    assert broken_of(CompilationConfig(cuda_graph_mode=GraphMode.NONE), 4) == ()
    assert descriptors_of(CompilationConfig(cuda_graph_mode=GraphMode.NONE), 4) == ()


@pytest.mark.parametrize("breaking", [(), ("aten::relu",)])
def test_a_rehearsal_is_heard_where_the_capture_will_be(
    monkeypatch: pytest.MonkeyPatch, breaking: tuple[str, ...]
) -> None:
    calls: list[str] = []

    def listening(hear: Callable[..., object]) -> AbstractContextManager[None]:
        def told(op: Any, args: Any, kwargs: Any) -> object:
            calls.append(op.name())
            return hear(op, args, kwargs)

        return heard(told)

    monkeypatch.setattr(capturing, "heard", listening)
    found: list[torch.Tensor] = []
    capturing.rehearsed(lambda: found.append(torch.relu(-torch.ones(2))), breaking)
    assert found[0].tolist() == [0, 0]
    assert ("aten::relu" in calls) == bool(breaking)
