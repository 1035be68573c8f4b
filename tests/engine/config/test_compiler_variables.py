"""What reaches a compiler is in the key, set by the build, or known to be harmless."""

from __future__ import annotations

import os

import pytest

from vcc.engine.config.compiler_variables import (
    DROPPED,
    HARMLESS,
    KEY_VARIABLES,
    is_dropped,
    unlisted,
)
from vcc.engine.config.environment import (
    compile_environment,
    drop_compiler_variables,
    inductor_names,
)
from vcc.engine.config.reads import Reads


def test_no_variable_is_in_two_tables() -> None:
    assert not set(KEY_VARIABLES) & set(HARMLESS)
    assert [name for name in (*KEY_VARIABLES, *HARMLESS) if is_dropped(name)] == []


def test_every_harmless_variable_says_why() -> None:
    assert all(why.strip() and not why.endswith(".") for why in HARMLESS.values())


def test_names_and_families_are_dropped_and_no_more() -> None:
    for name in ("CI", "TRITON_X", "TORCH_COMPILE_DEBUG", "SYMPY_USE_CACHE", "DUMP_AOTI_MINIFIER"):
        assert is_dropped(name), name
    for name in ("CIRCLE", "TORCH_LOGS", "TORCH_HOME", "PYTORCH_CUDA_ALLOC_CONF", "VCC_WORKERS"):
        assert not is_dropped(name), name
    assert len(set(DROPPED)) == len(DROPPED)


def test_a_read_that_no_table_knows_is_found() -> None:
    reads = Reads()
    for name in ("CXX", "HOME", "TRITON_CACHE_DIR", "OMP_NEW_SWITCH", "MODEL_WIDTH", "NUMPY_X"):
        reads.add(name, ["torch"] if "MODEL" not in name else ["small"])
    reads.found["NUMPY_X"] = {"numpy"}
    assert unlisted(reads, ("small",), inductor_names()) == ("MODEL_WIDTH", "OMP_NEW_SWITCH")
    assert unlisted(reads, (), ("OMP_NEW_SWITCH",)) == ()


def test_what_is_dropped_is_named_unless_a_build_set_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    for name in ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_CACHE_DIR", "SYMPY_DEBUG", "CI"):
        monkeypatch.setenv(name, "1")
    assert {"TORCHINDUCTOR_MAX_AUTOTUNE", "SYMPY_DEBUG", "CI"}.isdisjoint(
        compile_environment(tmp_path)
    )
    dropped = drop_compiler_variables()
    assert {"TORCHINDUCTOR_MAX_AUTOTUNE", "SYMPY_DEBUG"} <= set(dropped)
    assert "TORCHINDUCTOR_CACHE_DIR" not in dropped
    assert "CI" not in dropped, "set on every CI machine"
    assert "CI" not in os.environ
    assert drop_compiler_variables() == ()
