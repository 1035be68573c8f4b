"""Rows D*: which graph a step runs in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.cache.errors import ConfigError, GraphError
from vcc.engine.config.modes import CompileMode, GraphMode
from vcc.engine.config.types import CompilationConfig
from vcc.engine.runtime.dispatch import (
    ORDER,
    AttentionHints,
    BatchDescriptor,
    Dispatcher,
    dispatcher_of,
    lora_counts,
)

NONE, PIECEWISE, FULL = GraphMode.NONE, GraphMode.PIECEWISE, GraphMode.FULL
DECODE_ONLY, BOTH = GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE
SIZES = (1, 2, 4, 8)


def dispatcher(mode: GraphMode, **changes: object) -> Dispatcher:
    arguments = {"sizes": SIZES, "max_seqs": 8} | changes
    return Dispatcher.build(mode, **arguments)


def result(made: Dispatcher, tokens: int, uniform: bool, **more: object) -> tuple[object, ...]:
    found = made.dispatch(tokens, uniform, **more)
    key = found.descriptor
    return (found.mode, key.tokens, key.reqs, key.uniform)


def test_D1_full_has_one_key_per_size_and_no_piecewise_keys() -> None:
    made = dispatcher(FULL)
    assert (len(made.keys(FULL)), len(made.keys(PIECEWISE))) == (4, 0)


def test_D2_pure_full_does_not_separate_uniform() -> None:
    made = dispatcher(FULL)
    assert result(made, 3, False) == result(made, 3, True) == (FULL, 4, 4, False)


def test_D3_piecewise_leaves_requests_open() -> None:
    made = dispatcher(PIECEWISE)
    assert result(made, 3, False) == result(made, 3, True) == (PIECEWISE, 4, None, False)


def test_D4_full_and_piecewise_gives_decode_the_full_graph() -> None:
    made = dispatcher(BOTH)
    assert result(made, 3, False) == (PIECEWISE, 4, None, False)
    assert result(made, 3, True) == (FULL, 4, 4, True)
    assert (len(made.keys(FULL)), len(made.keys(PIECEWISE))) == (4, 4)


def test_D5_full_decode_only_runs_mixed_steps_unpadded() -> None:
    made = dispatcher(DECODE_ONLY)
    assert result(made, 3, False) == (NONE, 3, None, False)
    assert result(made, 3, True) == (FULL, 4, 4, True)
    assert "not uniform" in made.dispatch(3, False).reason


@pytest.mark.parametrize("mode", list(GraphMode))
@pytest.mark.parametrize("uniform", [True, False])
def test_D6_above_the_largest_size_runs_raw(mode: GraphMode, uniform: bool) -> None:
    assert result(dispatcher(mode), 9, uniform)[:2] == (NONE, 9)


@pytest.mark.parametrize("mode", list(GraphMode))
def test_D7_before_keys_are_built_every_step_is_none(mode: GraphMode) -> None:
    found = Dispatcher.unbuilt(mode).dispatch(3, True)
    assert (found.mode, found.descriptor) == (NONE, BatchDescriptor(3))
    assert found.reason


@pytest.mark.parametrize("mode", [FULL, DECODE_ONLY, NONE])
def test_D9_allowing_only_piecewise_without_its_key_is_an_error(mode: GraphMode) -> None:
    with pytest.raises(GraphError, match="no graph for a step of 3 tokens") as caught:
        dispatcher(mode).dispatch(3, False, allow=(PIECEWISE,))
    assert "piecewise" in caught.value.why


def test_above_the_largest_size_is_an_error_too_when_none_is_not_allowed() -> None:
    with pytest.raises(GraphError, match="above the largest size 8"):
        dispatcher(PIECEWISE).dispatch(9, False, allow=(PIECEWISE,))


def test_allow_can_keep_a_step_out_of_full() -> None:
    made = dispatcher(BOTH)
    assert result(made, 3, True, allow=(PIECEWISE, NONE)) == (PIECEWISE, 4, None, False)
    assert "does not allow" in made.dispatch(3, True, allow=(PIECEWISE, NONE)).reason


def test_D10_capture_order_is_piecewise_first_each_largest_first() -> None:
    order = [(mode, key.tokens) for mode, key in dispatcher(BOTH).capture_list()]
    expected = [(PIECEWISE, n) for n in (8, 4, 2, 1)] + [(FULL, n) for n in (8, 4, 2, 1)]
    assert order == expected


def test_D11_mode_none_captures_nothing() -> None:
    assert dispatcher(NONE).capture_list() == ()


@pytest.mark.parametrize("mode", [DECODE_ONLY, BOTH])
def test_D13_sizes_that_are_no_multiple_of_the_query_length_are_refused(mode: GraphMode) -> None:
    with pytest.raises(ConfigError, match="not a multiple of the decode query length 3") as caught:
        dispatcher(mode, query_len=3)
    assert caught.value.hint == "use 3, 6, 9"


def test_multiples_and_modes_without_decode_graphs_are_accepted() -> None:
    made = dispatcher(BOTH, query_len=3, sizes=(3, 6, 12))
    assert result(made, 6, True) == (FULL, 6, 2, True)
    assert result(made, 9, True) == (FULL, 12, 4, True)
    assert dispatcher(PIECEWISE, query_len=3).keys(PIECEWISE)


def test_uniform_tokens_that_are_not_whole_sequences_are_mixed() -> None:
    made = dispatcher(BOTH, query_len=3, sizes=(3, 6))
    assert result(made, 4, True) == (PIECEWISE, 6, None, False)


def test_D14_a_compile_size_that_is_padded_away_is_refused() -> None:
    with pytest.raises(ValueError, match="3 → 4"):
        dispatcher(PIECEWISE, compile_sizes=(3,))
    assert dispatcher(NONE, compile_sizes=(3,)).dispatch(3, False).mode is NONE


def test_D15_lora_cases() -> None:
    cases = lora_counts(4, specialise=True)
    assert set(cases) == {0, 1, 2, 4, 5}
    made = dispatcher(PIECEWISE, sizes=(1, 2), lora_cases=cases)
    assert len(made.keys(PIECEWISE)) == 10
    assert made.dispatch(2, False, loras=3).descriptor == BatchDescriptor(2, None, False, 4)
    above = made.dispatch(2, False, loras=6)
    assert (above.mode, above.descriptor.tokens) == (NONE, 2)
    assert "6 LoRAs are above" in above.reason


def test_without_specialising_one_case_serves_all() -> None:
    made = dispatcher(PIECEWISE, lora_cases=lora_counts(4, specialise=False))
    assert {made.dispatch(2, False, loras=n).descriptor.loras for n in range(6)} == {5}
    assert lora_counts(0, specialise=True) == (0,)


def test_a_lora_without_lora_graphs_runs_in_none() -> None:
    assert dispatcher(BOTH).dispatch(2, True, loras=1).mode is NONE


@pytest.mark.parametrize(
    ("hints", "word"),
    [
        (AttentionHints(cascade=True), "cascade"),
        (AttentionHints(shared_prefix=True), "shared-prefix"),
        (AttentionHints(longest_sequence=101), "101 tokens is beyond the captured 100"),
    ],
)
def test_D18_attention_makes_full_inadmissible(hints: AttentionHints, word: str) -> None:
    made = dispatcher(BOTH, longest_sequence=100)
    found = made.dispatch(3, True, attention=hints)
    assert (found.mode, found.descriptor) == (PIECEWISE, BatchDescriptor(4))
    assert word in found.reason
    assert dispatcher(FULL, longest_sequence=100).dispatch(3, True, attention=hints).mode is NONE


def test_a_sequence_inside_the_bucket_keeps_full() -> None:
    made = dispatcher(BOTH, longest_sequence=100)
    assert made.dispatch(3, True, attention=AttentionHints(longest_sequence=100)).mode is FULL
    assert (
        dispatcher(BOTH).dispatch(3, True, attention=AttentionHints(False, False, 9)).mode is FULL
    )


@pytest.mark.parametrize("mode", [PIECEWISE, BOTH])
def test_D17_piecewise_without_pieces_cannot_be_built(mode: GraphMode) -> None:
    with pytest.raises(ConfigError, match="needs pieces"):
        dispatcher(mode, pieces=False)


def test_holds_for_a_configuration() -> None:
    config = CompilationConfig(
        mode=CompileMode.NO_COMPILATION, cuda_graph_mode=PIECEWISE, capture_sizes=SIZES
    )
    with pytest.raises(ConfigError, match="needs pieces"):
        dispatcher_of(config, max_seqs=8)
    assert dispatcher_of(config, max_seqs=8, breakable=True).keys(PIECEWISE)


def test_decode_graphs_stop_at_the_most_sequences() -> None:
    made = dispatcher(BOTH, sizes=(1, 2, 4, 16), max_seqs=8)
    assert {key.tokens for key in made.keys(FULL)} == {1, 2, 4}
    assert result(made, 5, True) == (PIECEWISE, 16, None, False)


def test_full_mixed_steps_never_claim_more_requests_than_fit() -> None:
    assert result(dispatcher(FULL, max_seqs=2), 3, False) == (FULL, 4, 2, False)


@pytest.mark.parametrize("mode", list(GraphMode))
def test_a_step_without_tokens_is_none(mode: GraphMode) -> None:
    assert dispatcher(mode).dispatch(0, True).mode is NONE


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        dispatcher(FULL, sizes=(0, 1))


@given(
    mode=st.sampled_from(list(GraphMode)),
    sizes=st.lists(st.integers(1, 64), min_size=0, max_size=6),
    query_len=st.integers(1, 4),
    max_seqs=st.integers(1, 70),
    tokens=st.integers(-2, 80),
    uniform=st.booleans(),
    loras=st.integers(0, 7),
    max_loras=st.integers(0, 4),
    hints=st.builds(AttentionHints, st.booleans(), st.booleans(), st.integers(0, 20)),
    longest=st.integers(0, 20),
    allow=st.sets(st.sampled_from(ORDER[:2])).map(lambda some: (*some, NONE)),
)
@settings(max_examples=400, deadline=None)
def test_dispatch_is_total_and_picks_the_smallest_size(
    mode: GraphMode,
    sizes: list[int],
    query_len: int,
    max_seqs: int,
    tokens: int,
    uniform: bool,
    loras: int,
    max_loras: int,
    hints: AttentionHints,
    longest: int,
    allow: tuple[GraphMode, ...],
) -> None:
    sizes = [size * query_len for size in sizes]
    made = Dispatcher.build(
        mode,
        sizes,
        max_seqs=max_seqs,
        query_len=query_len,
        lora_cases=lora_counts(max_loras, specialise=True),
        longest_sequence=longest,
    )
    found = made.dispatch(tokens, uniform, loras=loras, attention=hints, allow=allow)
    again = made.dispatch(tokens, uniform, loras=loras, attention=hints, allow=allow)
    assert found == again
    assert found.reason
    assert found.mode in allow
    if found.mode is NONE:
        assert found.descriptor == BatchDescriptor(tokens)
        return
    assert found.descriptor in made.keys(found.mode)
    assert found.descriptor.loras >= loras
    assert found.descriptor.tokens == min(size for size in sizes if size >= tokens)
    assert mode.uses(found.mode)


@given(mode=st.sampled_from(list(GraphMode)), sizes=st.lists(st.integers(1, 64), max_size=8))
@settings(max_examples=100, deadline=None)
def test_every_captured_key_is_reached_by_some_step(mode: GraphMode, sizes: list[int]) -> None:
    made = Dispatcher.build(mode, sizes, max_seqs=64)
    reached = {
        (found.mode, found.descriptor)
        for tokens in range(1, 65)
        for uniform in (True, False)
        if (found := made.dispatch(tokens, uniform)).mode is not NONE
    }
    assert reached == set(made.capture_list())
