"""Spellings shared by JSON and the command line."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.modes import CompileMode, Dtype, GraphMode, OptLevel
from vcc.engine.config.spellings import (
    parse_compile_mode,
    parse_dtype,
    parse_graph_mode,
    parse_level,
    parse_sizes,
)


def test_each_choice_is_read_by_its_own_name() -> None:
    assert [parse_compile_mode(mode.name) for mode in CompileMode] == list(CompileMode)
    assert [parse_compile_mode(int(mode)) for mode in CompileMode] == list(CompileMode)
    assert [parse_graph_mode(mode.value) for mode in GraphMode] == list(GraphMode)
    assert [parse_graph_mode(mode.name) for mode in GraphMode] == list(GraphMode)
    assert [parse_level(f"-O{int(level)}") for level in OptLevel] == list(OptLevel)
    assert [parse_dtype(one.torch_name) for one in Dtype] == list(Dtype)


def test_short_command_line_forms() -> None:
    assert parse_compile_mode("vcc") is CompileMode.VCC_COMPILE
    assert parse_compile_mode("stock") is CompileMode.STOCK_TORCH_COMPILE
    assert parse_compile_mode("none") is CompileMode.NO_COMPILATION
    assert parse_graph_mode("full-decode-only") is GraphMode.FULL_DECODE_ONLY


def test_sizes() -> None:
    assert parse_sizes("1, 2,8") == (1, 2, 8)
    for text in ("", "1,,2", "0", "1,-2", "a", "1;2", "²"):
        with pytest.raises(ConfigError, match="cannot read sizes"):
            parse_sizes(text)


def test_a_misspelt_dtype_names_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="unknown dtype") as caught:
        parse_dtype("bfloat")
    assert "bfloat16" in caught.value.hint
