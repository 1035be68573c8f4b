"""Values with users that do not read them: the pieces compile, and their numbers are eager's.

Two ways to such a user. In a decoder with attention and MLP side by side, such as Cohere's, the
normalised sum is written over one of the addends: that copy waits for the sum, but reads nothing of
it. And what a model writes into a table of its own is read by the table's name from before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.generated import source_of
from support.toys import rows, traced
from torch import Tensor
from torch.fx import Interpreter

from vcc.engine.compile.pool import compile_pieces
from vcc.engine.events import NullEvents
from vcc.engine.partition.split import split
from vcc.engine.torch_shim import inductor
from vcc.engine.torch_shim.aoti_runner import open_piece
from vcc.engine.torch_shim.local_buffers import readers_only
from vcc.engine.types import Piece

toy = torch.ops.toy


def written_over_an_addend(m: Any, x: Tensor) -> Tensor:
    addend = toy.mix(x)
    total = addend + x
    addend.copy_(total.softmax(-1))
    return toy.mix(addend)


def parallel_blocks(m: Any, x: Tensor) -> Tensor:
    attended = toy.mix(x)
    residual = toy.mix(attended)
    total = attended + residual
    centred = total - total.mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
    query = normal @ m.weight
    attended.copy_(normal)
    residual.copy_(total)
    return toy.mix(attended) + residual + toy.mix(query)


def table_of_its_own(m: Any, x: Tensor) -> Tensor:
    table = torch.full((16, 16), -10000.0)
    places = torch.arange(16)
    table[places.unsqueeze(0), places.unsqueeze(1)] = 0
    return torch.softmax(x[0].reshape(16, 16) + table, -1)


MODELS: tuple[Callable[..., Tensor], ...] = (
    written_over_an_addend,
    parallel_blocks,
    table_of_its_own,
)


def first_piece(model: Callable[..., Tensor], dtype: torch.dtype = torch.float32) -> Piece:
    """The piece with the values in question; [T, 256] inputs, T from 1 to 64."""
    weight = torch.randn(256, 256).to(dtype)
    given = {"x": rows(16, 256).to(dtype)}
    return split(traced(model, given, {"x": {0: "T"}}, weight=weight), ("toy::mix",), ()).unique[0]


def test_local_buffers_readers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is read is as before, one that is not is None; afterwards it is an error."""
    from torch._inductor.loop_body import LoopBody

    def found(self: object, buffer_name: str) -> int:
        return {"read": 0}[buffer_name]

    monkeypatch.setattr(LoopBody, "get_read_expr", found)
    body = object.__new__(LoopBody)
    with readers_only():
        assert body.get_read_expr("read") == 0
        assert body.get_read_expr("absent") is None
    assert LoopBody.get_read_expr is found


@pytest.mark.parametrize("model", [written_over_an_addend, table_of_its_own])
def test_torch_still_needs_it(
    model: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 196570 of pytorch; where this fails, `readers_only` is for older ones alone."""
    monkeypatch.setattr(inductor, "readers_only", nullcontext)
    with pytest.raises(Exception, match="KeyError"):
        source_of(first_piece(model, torch.bfloat16))


@pytest.mark.parametrize("model", MODELS)
def test_code_is_generated(model: Callable[..., Tensor]) -> None:
    """In 16 bits, where the loops are others; in fp32 they are compiled below."""
    assert "AOTInductorModel::run_impl" in source_of(first_piece(model, torch.bfloat16))


@pytest.mark.parametrize(
    "model", [MODELS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in MODELS[1:])]
)
def test_a_compiled_piece_has_the_numbers_of_eager(
    model: Callable[..., Tensor], tmp_path: Path
) -> None:
    """The worker holds the library against a golden; these are other inputs and sizes."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    piece = first_piece(model)
    options = inductor.merged_options("x86-64-v3", {})
    (made,) = compile_pieces([piece], options, 1, NullEvents())
    library = tmp_path / "piece.so"
    library.write_bytes(made.library)
    run = open_piece(library)
    for count in (1, 7, 64):
        assert_as_eager(piece, run, count)


def assert_as_eager(piece: Piece, run: Callable[..., Any], count: int) -> None:
    """Every argument is equal afterwards: results go where they are asked for, and over inputs."""
    sizes = {symbol.name: count for symbol in piece.symbols}
    given = [torch.randn([sizes.get(f"{d}", d) for d in a.shape]) for a in piece.arguments]
    wanted = [one.clone() for one in given]
    run(given)
    Interpreter(piece.graph).run(*wanted)
    torch.testing.assert_close(given, wanted)
