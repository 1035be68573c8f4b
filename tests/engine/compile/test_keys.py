"""Every field of the configuration, mutated one by one: the right key changes, or no piece does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.builds import MODEL
from support.flow import ask, built, kept_environment

from vcc.cache.errors import ConfigError, DeviceError
from vcc.cache.key import Key
from vcc.cache.store import Store
from vcc.engine.compile import pool
from vcc.engine.compile.keys import BuildKeys, build_keys, code_entries, keys_here, plan_entries
from vcc.engine.compile.toolchain import Compiler
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.config.modes import Backend, CompileMode, Dtype, GraphMode, KvDtype, OptLevel
from vcc.engine.config.target import Target
from vcc.engine.config.types import (
    ArenaConfig,
    CompilationConfig,
    DimRange,
    DynamicShapes,
    ModelConfig,
    ParallelConfig,
    PassConfig,
)
from vcc.engine.request import BuildRequest, settle
from vcc.engine.torch_shim import preload
from vcc.engine.types import CompiledPiece

GCC = Compiler("g++", "12.2.0")
NESTED = {
    "pass_config": PassConfig,
    "dynamic_shapes": DynamicShapes,
    "arena": ArenaConfig,
    "tokens": DimRange,
    "seqs": DimRange,
}
PARTS = ("compilation", "model", "parallel", "target")
KINDS = (CompilationConfig, ModelConfig, ParallelConfig, Target)

OTHER: dict[str, tuple[Any, str]] = {
    "compilation.level": (OptLevel.O1, "plan"),  # by the graph mode that it fills
    "compilation.mode": (CompileMode.DYNAMO_TRACE_ONCE, "code plan"),  # no cuts: full graphs only
    "compilation.backend": (Backend.EAGER, "code"),
    "compilation.cuda_graph_mode": (GraphMode.PIECEWISE, "plan"),
    **{
        f"compilation.pass_config.{rule.name}": (
            bool(rule.needs_ops) or rule.from_level is None,
            "code plan" if rule.joins_attention else "code",  # it leaves no pieces
        )
        for rule in PASS_RULES  # on by default, unless its operators are not, or no level is
    },
    "compilation.user_passes": (("support.own_passes:SQUARE",), "code"),
    "compilation.splitting_ops": (("vcc::kv_write",), "code"),
    "compilation.use_inductor_graph_partition": (True, "code plan"),  # no pieces
    "compilation.compile_sizes": ((4,), "code"),
    "compilation.compile_ranges": ((4,), "code"),
    "compilation.capture_sizes": ((1,), "plan"),
    "compilation.cudagraph_specialize_lora": (False, "plan"),
    "compilation.max_capture_size": (16, "plan"),  # folded into the sizes
    "compilation.custom_ops": (("all",), "code"),
    "compilation.inductor_config": ((("cpp.simdlen", 128),), "code"),
    "compilation.dynamic_shapes.tokens.min": (2, "code"),
    "compilation.dynamic_shapes.tokens.max": (64, "code"),
    "compilation.dynamic_shapes.seqs.min": (2, "code"),
    "compilation.dynamic_shapes.seqs.max": (64, "code"),
    "compilation.arena.enabled": (False, ""),
    "model.source": ("elsewhere", ""),
    "model.revision": ("abc", ""),
    "model.dtype": (Dtype.FP32, "code"),
    "model.quantisation": ("fp8", "refused"),
    "model.kv_cache_dtype": (KvDtype.FP8, "code"),
    "model.max_model_len": (256, "code"),
    "model.max_num_seqs": (64, "code plan"),  # default sizes follow it
    "model.max_num_batched_tokens": (1024, "code"),
    "model.block_size": (32, "plan"),
    "model.enable_lora": (True, "code"),
    "model.max_loras": (2, "code"),
    "model.max_lora_rank": (64, "code"),
    "model.lora_target_modules": (("q_proj",), "code"),
    "parallel.tp": (2, "refused"),
    "parallel.ep": (2, "refused"),
    "parallel.dp": (2, "refused"),
    "target.platform": (Target.parse("sm_90"), "code"),
    "target.arch": (Target.parse("cpu:x86-64-v4"), "code"),
    "target.sm_count": (Target.parse("sm_90:114"), "code"),
}
"""Another value of every leaf, and which keys change with it."""


def leaves(prefix: str, kind: type) -> Iterator[str]:
    for one in fields(kind):
        inner = NESTED.get(one.name)
        path = f"{prefix}.{one.name}"
        yield from leaves(path, inner) if inner is not None else (path,)


def mutated(asked: BuildRequest, path: str, value: Any) -> BuildRequest:
    """The request with one leaf changed; an unset range starts from what it resolves to."""
    part, *names = path.split(".")
    if part == "target":
        return replace(asked, target=value)
    changed = with_leaf(getattr(asked, part), names, value)
    return replace(asked, **{part: changed})


def with_leaf(config: Any, names: list[str], value: Any) -> Any:
    name, *rest = names
    if not rest:
        return replace(config, **{name: value})
    inner = getattr(config, name)
    if inner is None:
        inner = DimRange(1, 2048 if name == "tokens" else 128)
    return replace(config, **{name: with_leaf(inner, rest, value)})


def keys_of(asked: BuildRequest) -> BuildKeys:
    settled = settle(asked)
    return BuildKeys(code_entries(settled, GCC), plan_entries(settled))


@pytest.fixture(scope="module")
def demo() -> BuildRequest:
    return ask("demo", target="cpu", weights="none")


def test_the_table_has_every_leaf() -> None:
    found = [leaf for part, kind in zip(PARTS, KINDS, strict=True) for leaf in leaves(part, kind)]
    assert sorted(found) == sorted(OTHER)
    kinds = {kind for kind in NESTED.values() if is_dataclass(kind)}
    assert kinds == {PassConfig, DynamicShapes, ArenaConfig, DimRange}


ON_A_GPU = ("target.sm_count", "compilation.cudagraph_specialize_lora")
"""Fields that say nothing of code for the CPU."""


@pytest.mark.parametrize("path", OTHER)
def test_a_mutated_field_changes_the_keys_that_it_must(demo: BuildRequest, path: str) -> None:
    value, wanted = OTHER[path]
    if wanted == "refused":
        with pytest.raises(ConfigError):
            settle(mutated(demo, path, value))
        return
    base = replace(demo, target=Target.parse("sm_90")) if path in ON_A_GPU else demo
    if "lora" in path and path != "model.enable_lora":  # they say nothing without it
        base = mutated(base, "model.enable_lora", True)
    before, after = keys_of(base), keys_of(mutated(base, path, value))
    changed = [name for name in ("code", "plan") if getattr(before, name) != getattr(after, name)]
    assert changed == wanted.split()


UNCHANGED = [path for path, (_, wanted) in OTHER.items() if "code" not in wanted.split()]


@pytest.fixture
def pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo: BuildRequest) -> Iterator[Any]:
    """Identities of the pieces of a request; no compiler runs."""
    (tmp_path / "small.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "small", raising=False)
    monkeypatch.setattr(preload, "preload_inductor", lambda level: None)
    given: list[dict[str, Any]] = []

    def stand_in(unique: Any, options: Any, jobs: int, events: Any, *_: Any) -> Any:
        given.append(dict(options))
        return tuple(CompiledPiece(one.id, b"\x7fELF", None, None, 0.1) for one in unique)

    monkeypatch.setattr(pool, "compile_pieces", stand_in)

    def of(path: str = "", value: Any = None) -> tuple[list[str], dict[str, Any]]:
        asked = ask("small:make", inputs=("x=1-64x48",), target="cpu", dtype="fp32")
        asked = mutated(asked, path, value) if path else asked
        found = built(asked, Store.open(tmp_path / f"store{path}"))
        return sorted(found.loaded.manifest.blobs), given[-1]

    with kept_environment():
        yield of


def test_fields_in_no_code_key_leave_pieces_and_options_as_they_are(pieces: Any) -> None:
    before = pieces()
    for path in UNCHANGED:
        value, wanted = OTHER[path]
        if wanted != "refused":
            assert pieces(path, value) == before, path


def test_parallel_layouts_and_quantisation_are_in_request_and_code_key(demo: BuildRequest) -> None:
    """F104: what is refused today already stands in the keys with the value that there is."""
    code = keys_of(demo).code
    for label in ("parallel.tp", "parallel.ep", "parallel.dp", "model.quantisation"):
        assert label in code


def test_all_factors_of_the_toolchain_are_in_the_code_key(demo: BuildRequest) -> None:
    labels = keys_of(demo).code.keys()
    for name in ("torch", "triton", "cuda", "cublas", "cudnn", "nccl", "vcc", "vcc.abi"):
        assert f"version.{name}" in labels
    for name in ("manifest", "program", "table"):
        assert f"format.{name}" in labels
    assert {"pass.eliminate_noops", "pass.eliminate_dead_code", "vcc.source"} <= labels
    assert {"inductor.aot_inductor.check_lowerbound", "inductor.cpp.march"} <= labels
    gpu = keys_of(replace(demo, target=Target.parse("sm_90"))).code.keys()
    assert {"inductor.size_asserts", "target.profile", "kv.layout", "kv.block_size"} <= gpu


def test_a_mode_that_compiles_nothing_has_no_compiler_in_its_key(demo: BuildRequest) -> None:
    eager = replace(demo, compilation=CompilationConfig(mode=CompileMode.NO_COMPILATION))
    labels = code_entries(settle(eager), None).keys()
    prefixes = ("pass.", "inductor.", "compiler")
    assert not [label for label in labels if label.startswith(prefixes)]


def test_a_speculative_field_is_refused_by_name() -> None:
    """F106: what no version has is no field that could be left out of a key."""
    for name in ("speculative_tokens", "lora_dtype", "kv_cache_dtype"):
        with pytest.raises(ConfigError, match=name):
            ask("demo", config=f'{{"{name}": 2}}')


def test_the_keys_of_a_machine_without_compiler_say_so(
    demo: BuildRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    settled = settle(demo)
    assert keys_here(settled).code["compiler"] == "none"
    with pytest.raises(DeviceError):
        build_keys(settled)


def test_keys_are_clean_and_the_same_each_time(demo: BuildRequest) -> None:
    keys = [keys_of(demo) for _ in range(2)]
    texts = [Key.of({**one.code, **one.plan}).text for one in keys]
    assert texts[0] == texts[1]
    assert keys[0].key == keys[1].key
