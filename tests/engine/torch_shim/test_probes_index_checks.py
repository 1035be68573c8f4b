"""A bad index ends the call of a compiled piece, on one thread and on several, not the process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.generated import source_of
from support.toys import traced
from torch import Tensor

from vcc.engine.compile.pool import compile_pieces
from vcc.engine.events import NullEvents
from vcc.engine.partition.split import split
from vcc.engine.torch_shim import inductor
from vcc.engine.torch_shim.aoti_runner import OUTSIDE, RunPiece, open_piece
from vcc.engine.torch_shim.index_checks import checks_that_return
from vcc.engine.types import Piece

WEIGHT = torch.randn(50, 24)


def test_index_checks_checks_that_return() -> None:
    """Both methods are there, are others inside, and are as before afterwards."""
    from torch._inductor.codegen.cpp import CppKernel, WorkSharing

    before = CppKernel.gen_body, WorkSharing.parallel
    with checks_that_return():
        assert CppKernel.gen_body is not before[0]
        assert WorkSharing.parallel is not before[1]
    assert before == (CppKernel.gen_body, WorkSharing.parallel)


def looked_up(m: Any, ids: Tensor) -> Tensor:
    rows: Tensor = m.weight[ids]
    return rows * 2


def piece_of(model: Callable[..., Tensor]) -> Piece:
    """The piece of a model of ids [T], T from 1 to 64, and a weight [50, 24]."""
    ids = {"ids": torch.arange(16)}
    return split(traced(model, ids, {"ids": {0: "T"}}, weight=WEIGHT), (), ()).unique[0]


def test_code_without_a_check_has_no_flag() -> None:
    assert "outside" in source_of(piece_of(looked_up))
    assert "outside" not in source_of(piece_of(lambda m, ids: m.weight.sum() + ids))


@pytest.mark.slow
def test_the_process_and_the_piece_survive_a_bad_index(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    options = inductor.merged_options("x86-64-v3", {})
    (made,) = compile_pieces([piece_of(looked_up)], options, 1, NullEvents())
    library = tmp_path / "piece.so"
    library.write_bytes(made.library)
    run = open_piece(library)
    for ids in (torch.tensor([0, 49]), torch.randint(0, 50, (63,))):
        for bad in (50, -51, 1 << 40):
            with pytest.raises(RuntimeError, match=OUTSIDE):
                called(run, torch.cat([ids, torch.tensor([bad])]))
        torch.testing.assert_close(called(run, ids), WEIGHT[ids] * 2)


def called(run: RunPiece, ids: Tensor) -> Tensor:
    rows = torch.empty(len(ids), 24)
    run([WEIGHT, ids, rows])
    return rows
