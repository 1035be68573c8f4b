"""The memory of a step: fixed addresses, packed without overlap, bound tensors checked once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from msgspec import structs
from support.programs import chain, programs, value
from support.steps import layered

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.packing import ALIGNMENT, lifetimes
from vcc.engine.graphs.program import Call, Program, Symbol
from vcc.engine.runtime.memory import StepMemory

SIZES = {"T": 64}


def test_a_value_has_one_address_at_all_sizes() -> None:
    memory = StepMemory(chain([8, 4, 2]), {}, SIZES)
    for name in ("x", "b0", "b1"):
        views = [memory.view(name, {"T": tokens}) for tokens in (1, 7, 64)]
        assert len({view.data_ptr() for view in views}) == 1
        assert [view.shape[0] for view in views] == [1, 7, 64]
        assert all(view.is_contiguous() for view in views)
        assert views[0].data_ptr() % ALIGNMENT == 0


def test_views_of_one_value_share_memory() -> None:
    memory = StepMemory(chain([8, 4]), {}, SIZES)
    memory.view("b0", {"T": 64}).fill_(3.0)
    assert memory.view("b0", {"T": 5}).eq(3.0).all()


@given(programs())
def test_live_buffers_do_not_overlap_at_any_size(drawn: tuple[Program, dict[str, int]]) -> None:
    program, _ = drawn
    memory = StepMemory(program, {}, SIZES)
    lives = lifetimes(program, {v.name: 0 for v in program.of_role("buffer")})
    spans = {life.name: span(memory.view(life.name, SIZES)) for life in lives}
    for index, one in enumerate(lives):
        for other in lives[index + 1 :]:
            if one.first <= other.last and other.first <= one.last:
                (a, b), (c, d) = spans[one.name], spans[other.name]
                assert b <= c or d <= a


def span(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def test_inputs_stay_apart_from_buffers_and_from_each_other() -> None:
    """The host writes them before each step, also where a buffer's lifetime has not begun."""
    program = layered(2)
    sizes = {"T": 64, "B": 8, "K": 4}
    caches = {f"kv_caches_{i}": torch.zeros(2, 4, 8, 1, 4) for i in range(2)}
    memory = StepMemory(program, caches, sizes)
    inputs = [v.name for v in program.of_role("input") if v.name not in caches]
    spans = [span(memory.view(name, sizes)) for name in inputs]
    spans += [span(memory.view(v.name, sizes)) for v in program.of_role("buffer")]
    for index in range(len(inputs)):
        for other in range(index + 1, len(spans)):
            (a, b), (c, d) = spans[index], spans[other]
            assert b <= c or d <= a


@pytest.mark.parametrize("size", [["+", 64, ["*", -1, "T"]], ["+", "T", ["%", "T", 8], 1]])
def test_a_buffer_that_is_not_largest_at_the_largest_size_has_room(size: Any) -> None:
    """64 - T rows are most at one token, T + T % 8 + 1 at 63."""
    program = chain([4, 4, 4, 4, 4])
    values = [value(v.name, v.role, [size, 4]) if v.role == "buffer" else v for v in program.values]
    program = structs.replace(program, values=values)
    memory = StepMemory(program, {}, SIZES)
    for tokens in range(1, 65):
        (a, b), (c, d) = (span(memory.view(name, {"T": tokens})) for name in ("b2", "b3"))
        assert b <= c or d <= a


CACHE = torch.zeros(2, 4, 8, 1, 4)
STEP_SIZES = {"T": 64, "B": 8, "K": 4}


def test_the_host_writes_an_input_where_the_step_reads_it() -> None:
    program = layered(1)
    memory = StepMemory(program, {"kv_caches_0": CACHE}, STEP_SIZES)
    array = memory.array("query_start")
    assert array.shape == (9,)
    array[:3] = (0, 2, 5)
    assert memory.view("query_start", {"T": 5, "B": 2, "K": 4}).tolist() == [0, 2, 5]
    assert not memory.array("input_ids").any(), "inputs begin as zeros"


def test_a_chain_of_layers_needs_the_memory_of_a_few() -> None:
    caches = {f"kv_caches_{i}": torch.zeros(2, 4, 8, 1, 4) for i in range(24)}
    sizes = {"T": 64, "B": 8, "K": 4}
    few = StepMemory(layered(2), caches, sizes).workspace_bytes
    assert StepMemory(layered(24), caches, sizes).workspace_bytes == few


def test_given_tensors_are_used_as_they_are() -> None:
    weight = torch.randn(4, 4)
    memory = StepMemory(weighted(), {"w": weight}, SIZES)
    assert memory.view("w", SIZES) is weight


def weighted() -> Program:
    values = [value("x", "input", ["T", 4]), value("w", "weight", [4, 4])]
    values.append(value("y", "buffer", ["T", 4]))
    call = Call("piece", "p", ["x", "w", "y"], ["y"])
    return Program(1, [Symbol("T", 1, 64, "x", 0)], values, [call], ["y"])


UNFIT: dict[str, Any] = {
    "rows": torch.zeros(5, 4),
    "columns": torch.zeros(4, 5),
    "rank": torch.zeros(4, 4, 1),
    "flat": torch.zeros(16),
    "dtype": torch.zeros(4, 4, dtype=torch.bfloat16),
    "transposed": torch.zeros(4, 4).t(),
    "every other column": torch.zeros(4, 8)[:, ::2],
    "expanded": torch.zeros(1, 4).expand(4, 4),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_weight_that_the_code_was_not_made_for_is_refused(name: str) -> None:
    """G107-G109: compiled code checks nothing itself."""
    with pytest.raises(IntegrityError, match="w does not fit the compiled code") as caught:
        StepMemory(weighted(), {"w": UNFIT[name]}, SIZES)
    assert "float32" in caught.value.why
    assert "[4, 4]" in caught.value.why


def test_a_weight_that_is_not_given_is_named() -> None:
    """Never a place in the workspace: what lies there is no weight."""
    with pytest.raises(IntegrityError, match="weight w is missing"):
        StepMemory(weighted(), {}, SIZES)


def test_a_cache_may_have_any_number_of_blocks() -> None:
    for blocks in (1, 7):
        cache = {"kv_caches_0": torch.zeros(2, blocks, 8, 1, 4)}
        StepMemory(layered(1), cache, {"T": 64, "B": 8, "K": blocks})
    with pytest.raises(IntegrityError, match="kv_caches_0"):
        StepMemory(layered(1), {"kv_caches_0": torch.zeros(2, 4, 9, 1, 4)}, STEP_SIZES)
