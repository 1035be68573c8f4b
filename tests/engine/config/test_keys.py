"""How configuration enters the keys: every field is marked, order never matters."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.fields import PARTS
from vcc.engine.config.keys import key_entries, key_fields
from vcc.engine.config.modes import (
    Backend,
    CompileMode,
    Dtype,
    GraphMode,
    KvDtype,
    OptLevel,
    Platform,
)
from vcc.engine.config.parse import parse_config
from vcc.engine.config.resolve import PlatformFacts, resolve
from vcc.engine.config.types import (
    ArenaConfig,
    CompilationConfig,
    DimRange,
    DynamicShapes,
    ModelConfig,
    ParallelConfig,
    PassConfig,
    Target,
)

KINDS = (
    *(CompilationConfig, PassConfig, DynamicShapes, DimRange, ArenaConfig),
    *(ModelConfig, ParallelConfig),
)

OTHER: dict[type, dict[str, object]] = {
    CompilationConfig: {
        "level": OptLevel.O1,
        "mode": CompileMode.NO_COMPILATION,
        "backend": Backend.EAGER,
        "cuda_graph_mode": GraphMode.FULL,
        "pass_config": PassConfig(eliminate_noops=False),
        "user_passes": ("package:PASS",),
        "splitting_ops": ("a::b",),
        "compile_sizes": (4,),
        "use_inductor_graph_partition": True,
        "compile_ranges": (4,),
        "capture_sizes": (1,),
        "cudagraph_specialize_lora": True,
        "max_capture_size": 16,
        "custom_ops": ("all",),
        "inductor_config": (("a", 1),),
        "dynamic_shapes": DynamicShapes(tokens=DimRange(1, 7)),
        "arena": ArenaConfig(enabled=False),
    },
    ModelConfig: {
        "source": "other",
        "revision": "abc",
        "dtype": Dtype.BF16,
        "max_model_len": 9,
        "max_num_seqs": 9,
        "max_num_batched_tokens": 9,
        "block_size": 9,
        "enable_lora": True,
        "quantisation": "fp8",
        "max_loras": 9,
        "max_lora_rank": 9,
        "lora_target_modules": ("q_proj",),
        "kv_cache_dtype": KvDtype.FP8,
    },
    ParallelConfig: {"tp": 2, "ep": 2, "dp": 2},
}
BASE = {
    CompilationConfig: CompilationConfig(),
    ModelConfig: ModelConfig("demo"),
    ParallelConfig: ParallelConfig(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_says_how_it_enters_the_key_and_why(kind: type) -> None:
    for name, part, why in key_fields(kind):
        assert part in PARTS, name
        assert why, name


@pytest.mark.parametrize("kind", BASE)
def test_changing_a_field_changes_exactly_the_part_it_declares(kind: type) -> None:
    base = BASE[kind]
    for name, part, _ in key_fields(kind):
        changed = replace(base, **{name: OTHER[kind][name]})
        different = [one for one in PARTS if key_entries(changed, one) != key_entries(base, one)]
        assert different == [part], name


def test_every_leaf_is_in_exactly_one_part() -> None:
    config = resolve(CompilationConfig(), PlatformFacts(Platform.CPU, 8, 64)).config
    labels = [label for part in PARTS for label, _ in key_entries(config, part)]
    assert sorted(labels) == sorted(leaves("config", config))


def leaves(prefix: str, config: object) -> list[str]:
    found: list[str] = []
    for item in fields(config):  # type: ignore[arg-type]
        value = getattr(config, item.name)
        label = f"{prefix}.{item.name}"
        found += leaves(label, value) if is_dataclass(value) else [label]
    return found


def test_C1_order_of_fields_and_sets_does_not_matter() -> None:
    known = PlatformFacts(Platform.CPU, 8, 64, known_ops=("a", "b"))
    texts = (
        '{"custom_ops": ["+a", "+b"], "splitting_ops": ["x::a", "x::b"], "compile_ranges": [4, 8],'
        ' "inductor_config": {"p": 1, "q": 2}}',
        '{"inductor_config": {"q": 2, "p": 1}, "compile_ranges": [8, 4, 8],'
        ' "splitting_ops": ["x::b", "x::a", "x::b"], "custom_ops": ["+b", "none", "+a"]}',
    )
    one, two = (resolve(parse_config(text), known).config for text in texts)
    assert one == two
    assert key_entries(one, "code") == key_entries(two, "code")


def test_C4_capture_sizes_change_the_plan_and_keep_the_code() -> None:
    known = PlatformFacts(Platform.CPU, 8, 64)
    one, two = (
        resolve(CompilationConfig(capture_sizes=sizes), known).config for sizes in ((1, 2), (1, 4))
    )
    assert key_entries(one, "code") == key_entries(two, "code")
    assert key_entries(one, "plan") != key_entries(two, "plan")


def test_a_level_is_in_no_key_but_what_it_fills_is() -> None:
    known = PlatformFacts(Platform.CPU, 8, 64)
    two = resolve(CompilationConfig(level=OptLevel.O2), known).config
    filled = resolve(replace(two, level=OptLevel.O1), known).config
    assert key_entries(two, "code") == key_entries(filled, "code")
    three = resolve(CompilationConfig(level=OptLevel.O3), known).config
    assert key_entries(two, "code") != key_entries(three, "code")


def test_a_target_is_code_and_nothing_else() -> None:
    target = Target.parse("sm_90a:132")
    assert key_entries(target, "code") == (("target", "sm_90a:132"),)
    assert key_entries(target, "plan") == ()


def test_entries_are_plain_text_in_order_of_label() -> None:
    config = CompilationConfig(mode=CompileMode.VCC_COMPILE, inductor_config=(("a", True),))
    entries = dict(key_entries(config, "code"))
    assert list(entries) == sorted(entries)
    assert entries["config.mode"] == "VCC_COMPILE"
    assert entries["config.inductor_config"] == '{"a":true}'
    assert entries["config.backend"] == "null"


def test_an_unknown_part_or_type_is_refused() -> None:
    with pytest.raises(ConfigError, match='unknown key part "both"'):
        key_entries(ParallelConfig(), "both")
    with pytest.raises(ConfigError, match="no key entries"):
        key_entries(3, "code")
