"""What is pinned in code generation: threads of the build leave no mark, and nothing folds."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from support.generated import source_of
from support.toys import rows, traced

from vcc.cache.errors import ConfigError
from vcc.engine.compile.inductor import InductorCompiler
from vcc.engine.config.target import Target
from vcc.engine.partition.split import split
from vcc.engine.types import Piece


@pytest.fixture(scope="module")
def piece() -> Piece:
    """A reduction and a large loop, which threads are divided over; a constant to fold."""

    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        table = torch.arange(512.0) * 2 + 1
        return (x * table).softmax(-1).sum(0) + torch.ones(512)

    arguments = {"x": rows(64, 512)}
    (found,) = split(traced(model, arguments, {"x": {0: "T"}}), (), ()).unique
    return found


@pytest.fixture(scope="module")
def source(piece: Piece) -> str:
    return source_of(piece)


def test_threads_and_earlier_pieces_are_not_in_the_code(
    piece: Piece, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cpp.dynamic_threads`: a library uses as many as the machine that loads it gives."""
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    torch.set_num_threads(7)
    try:
        assert source_of(piece) == source
    finally:
        torch.set_num_threads(before)
    assert "num_threads(7)" not in source
    assert os.getcwd() not in source


def test_nothing_is_folded_into_constants_of_the_library(source: str) -> None:
    """A constant of a library would be memory of its own, in no arena and in no golden."""
    assert "AOTInductorModel::run_impl" in source
    assert "constants_info_[" not in source


def test_an_option_that_does_not_exist_is_refused_before_anything_is_traced() -> None:
    compiler, target = InductorCompiler(), Target.parse("cpu")
    with pytest.raises(ConfigError, match=r'no option "cpp\.simdln"') as caught:
        compiler.options(target, {"cpp.simdln": 256}, "g++ 12")
    assert "cpp.simdlen" in caught.value.hint
    with pytest.raises(ConfigError, match=r'"cpp\.threads" cannot be 1') as caught:
        compiler.options(target, {"cpp.threads": 1}, "g++ 12")
    assert "leave it out" in caught.value.hint
    options, pairs = compiler.options(target, {"cpp.simdlen": 128}, "g++ 12")
    assert options["cpp.simdlen"] == 128
    assert ("inductor.cpp.simdlen", "128") in pairs
    assert compiler.factors(target, {"cpp.simdlen": 128})["inductor.cpp.simdlen"] == "128"
