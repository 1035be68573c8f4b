"""JSON to configuration and back, aliases, and refusals that help."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.cache.errors import ConfigError
from vcc.engine.config.modes import Backend, CompileMode, Dtype, GraphMode, OptLevel
from vcc.engine.config.parse import READERS, parse_config, parse_model, parse_parallel, to_json
from vcc.engine.config.types import (
    ArenaConfig,
    CompilationConfig,
    DimRange,
    DynamicShapes,
    ModelConfig,
    ParallelConfig,
    PassConfig,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"compilation_mode": 3}', CompilationConfig(mode=CompileMode.VCC_COMPILE)),
        ('{"mode": "VLLM_COMPILE"}', CompilationConfig(mode=CompileMode.VCC_COMPILE)),
        ('{"mode": "3"}', CompilationConfig(mode=CompileMode.VCC_COMPILE)),
        ('{"mode": "trace-once"}', CompilationConfig(mode=CompileMode.DYNAMO_TRACE_ONCE)),
        ('{"mode": 0}', CompilationConfig(mode=CompileMode.NO_COMPILATION)),
        ('{"cudagraph_mode": "FULL"}', CompilationConfig(cuda_graph_mode=GraphMode.FULL)),
        ('{"cudagraph_mode": 1}', CompilationConfig(cuda_graph_mode=GraphMode.PIECEWISE)),
        (
            '{"cudagraph_mode": "FULL_AND_PIECEWISE"}',
            CompilationConfig(cuda_graph_mode=GraphMode.FULL_AND_PIECEWISE),
        ),
        ('{"cudagraph_capture_sizes": [1, 2]}', CompilationConfig(capture_sizes=(1, 2))),
        ('{"max_cudagraph_capture_size": 8}', CompilationConfig(max_capture_size=8)),
        ('{"compile_ranges_split_points": [8]}', CompilationConfig(compile_ranges=(8,))),
        ('{"level": "-O1"}', CompilationConfig(level=OptLevel.O1)),
        ('{"optimization_level": 0}', CompilationConfig(level=OptLevel.O0)),
        ('{"backend": "eager"}', CompilationConfig(backend=Backend.EAGER)),
        (
            '{"inductor_compile_config": {"b": 1, "a": true}}',
            CompilationConfig(inductor_config=(("a", True), ("b", 1))),
        ),
        (
            '{"dynamic_shapes": {"tokens": [1, 8], "seqs": {"min": 1, "max": 2}}}',
            CompilationConfig(dynamic_shapes=DynamicShapes(DimRange(1, 8), DimRange(1, 2))),
        ),
        ('{"mode": null}', CompilationConfig()),
        ("{}", CompilationConfig()),
    ],
)
def test_spellings_and_aliases(text: str, expected: CompilationConfig) -> None:
    assert parse_config(text) == parse_config(json.loads(text)) == expected


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('{"mod": 3}', 'unknown field "mod"', 'did you mean "mode"?'),
        ('{"cudagraph_capture_size": [1]}', "unknown field", '"cudagraph_capture_sizes"'),
        ('{"use_inductor": true}', "unknown field", '"backend"'),
        ('{"mode": "vlm_compile"}', "unknown mode", 'did you mean "vllm_compile"'),
        ('{"mode": 4}', 'unknown mode "4"', "known: vcc"),
        ('{"level": 4}', 'unknown level "4"', "levels are 0 to 3, as in -O2"),
        ('{"cuda_graph_mode": "fulll"}', "unknown cuda_graph_mode", 'did you mean "full"'),
        ('{"mode": true}', "mode must be a name: got True (bool)", ""),
        ('{"mode": 1.5}', "mode must be a name", ""),
        ('{"pass_config": {"fuse_x": true}}', 'unknown pass "fuse_x"', "eliminate_dead_code"),
        ('{"pass_config": {"eliminate_noop": true}}', "unknown pass", '"eliminate_noops"'),
        ('{"pass_config": {"eliminate_noops": 1}}', "eliminate_noops must be bool: got 1", ""),
        ('{"pass_config": true}', "pass_config must be an object", ""),
        ('{"pass_config": null}', "pass_config must be an object", ""),
        ('{"capture_sizes": [0]}', "capture_sizes[0] must be at least 1: got 0", ""),
        ('{"capture_sizes": [1, -2]}', "capture_sizes[1] must be at least 1: got -2", ""),
        ('{"capture_sizes": [2147483648]}', "capture_sizes[0] is too large", "2147483647"),
        (f'{{"max_capture_size": {"9" * 3000}}}', "a number of more than 20 digits", "at most"),
        ('{"capture_sizes": [true]}', "must be a whole number: got True (bool)", ""),
        ('{"capture_sizes": [1.0]}', "must be a whole number", ""),
        ('{"capture_sizes": [null]}', "must be a whole number", ""),
        ('{"capture_sizes": "1,2"}', "must be a list of whole numbers", ""),
        ('{"compile_sizes": 8}', "compile_sizes must be a list", ""),
        ('{"max_capture_size": false}', "max_capture_size must be a whole number", ""),
        ('{"max_capture_size": -1}', "max_capture_size must be at least 1", ""),
        ('{"splitting_ops": "a"}', "splitting_ops must be a list of names", ""),
        ('{"splitting_ops": ["a\\u0000b"]}', "must be printable", ""),
        ('{"inductor_config": {"a": "\\ud800"}}', "must be printable", ""),
        ('{"custom_ops": [1]}', "custom_ops must be a list of names", ""),
        ('{"inductor_config": {"a": [1]}}', "inductor_config.a must be", ""),
        ('{"inductor_config": {"a": null}}', "must be a finite value", ""),
        ('{"inductor_config": {"a": 1e999}}', "must be a finite value", ""),
        ('{"inductor_config": [1]}', "inductor_config must be an object", ""),
        ('{"dynamic_shapes": {"tokens": [5, 1]}}', "range 5 to 1 is empty", ""),
        ('{"dynamic_shapes": {"tokens": [1]}}', "must be [smallest, largest]", ""),
        ('{"dynamic_shapes": {"token": [1, 2]}}', "in dynamic_shapes", '"tokens"'),
        ('{"mode": 3, "mode": 3}', '"mode" is given twice', ""),
        ('{"mode": 3, "compilation_mode": 3}', '"mode" is given twice', ""),
        ('{"mode": NaN}', "NaN is no JSON number", ""),
        ("{", "not valid JSON", "cuda_graph_mode"),
        ("", "not valid JSON", ""),
        ("[1]", "must be a JSON object: got list", ""),
        ("[" * 200_000, "nested too deeply", ""),
        ('{"mode": ' + "1" * 5000 + "}", "cannot be read", ""),
    ],
)
def test_bad_input_says_what_why_and_a_hint(text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_a_text_beyond_the_cap_is_not_parsed() -> None:
    with pytest.raises(ConfigError, match="too long"):
        parse_config(" " * (1 << 21))


def test_other_types_go_round_as_well() -> None:
    model = ModelConfig("dir", dtype=Dtype.BF16, max_num_seqs=4)
    assert parse_model(to_json(model)) == model
    assert parse_model({"model": "dir", "dtype": "bfloat16", "max_num_seqs": 4}) == model
    assert parse_parallel(to_json(ParallelConfig(tp=2))) == ParallelConfig(tp=2)
    assert parse_parallel({"tensor_parallel_size": 2}) == ParallelConfig(tp=2)
    for values in ({"tp": 0}, {"tp": True}, {"dp": None}, {"pp": 2}):
        with pytest.raises(ConfigError):
            parse_parallel(values)


@pytest.mark.parametrize("kind", list(READERS))
def test_every_field_has_a_reader(kind: type) -> None:
    assert set(READERS[kind]) == set(kind.__slots__)


PRINTABLE = st.characters(exclude_categories=["C", "Z"])
SIZES = st.none() | st.lists(st.integers(1, (1 << 31) - 1), max_size=5).map(tuple)
NAMES = st.none() | st.lists(st.text("ab:_+", min_size=1, max_size=9), max_size=4).map(tuple)
SWITCH = st.none() | st.booleans()
SCALARS = (
    st.booleans() | st.integers() | st.text(PRINTABLE, max_size=9) | st.floats(allow_nan=False)
)
RANGES = st.none() | st.lists(st.integers(1, 99), min_size=2, max_size=2).map(
    lambda ends: DimRange(min(ends), max(ends))
)
CONFIGS = st.builds(
    CompilationConfig,
    level=st.none() | st.sampled_from(OptLevel),
    mode=st.none() | st.sampled_from(CompileMode),
    backend=st.none() | st.sampled_from(Backend),
    cuda_graph_mode=st.none() | st.sampled_from(GraphMode),
    pass_config=st.builds(PassConfig, **{item.name: SWITCH for item in fields(PassConfig)}),
    user_passes=NAMES,
    splitting_ops=NAMES,
    compile_sizes=SIZES,
    compile_ranges=SIZES,
    capture_sizes=SIZES,
    max_capture_size=st.none() | st.integers(0, 999),
    custom_ops=NAMES,
    inductor_config=st.none()
    | st.dictionaries(
        st.text(PRINTABLE, min_size=1, max_size=5),
        SCALARS.filter(lambda one: not isinstance(one, float) or abs(one) < 1e300),
    ).map(lambda options: tuple(options.items())),
    dynamic_shapes=st.builds(DynamicShapes, RANGES, RANGES),
    arena=st.builds(ArenaConfig, SWITCH),
)


@given(CONFIGS)
@settings(max_examples=100, deadline=None)
def test_json_goes_round(config: CompilationConfig) -> None:
    text = to_json(config)
    assert parse_config(text) == config
    assert to_json(parse_config(text)) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(READERS[CompilationConfig])) | st.text(), JSON))
@settings(max_examples=100, deadline=None)
def test_any_value_is_read_or_refused_as_a_config_error(raw: dict[str, object]) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_config(raw), CompilationConfig)
