"""Goldens at boot: which are checked, what a difference means, what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor
from torch.fx import Interpreter

from vcc.cache.errors import IntegrityError
from vcc.engine.compile.golden import make_golden
from vcc.engine.graphs.golden import Golden
from vcc.engine.partition.split import split
from vcc.engine.runtime import golden
from vcc.engine.runtime.golden import check_goldens
from vcc.engine.types import Pieces


def model(m: Any, x: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.ops.toy.mix(x * 2)
    return x + 1


class Boot:
    """What `check_goldens` asks of a boot; counts the goldens that are read."""

    def __init__(self, which: str, blobs: dict[str, bytes]) -> None:
        self.golden, self.notes, self.was_read = which, [], []
        self._blobs = blobs
        self.loaded = SimpleNamespace(manifest=SimpleNamespace(blobs=blobs), read=self._read)
        self.events = SimpleNamespace(note=self.notes.append)

    def _read(self, name: str) -> bytes:
        self.was_read.append(name.removeprefix("golden/"))
        return self._blobs[name]


Run = Callable[[Sequence[Tensor]], Any]


@pytest.fixture(scope="module")
def artifact() -> tuple[Pieces, dict[str, Run], dict[str, bytes]]:
    """A program of three equal pieces and one other, eager pieces, their goldens."""
    pieces = split(traced(model, {"x": rows()}, {"x": {0: "T"}}), ("toy::mix",), ())
    graphs = {p.id: Interpreter(p.graph) for p in pieces.unique}
    run = {name: lambda args, g=g: g.run(*args) for name, g in graphs.items()}
    blobs = {}
    for piece in pieces.unique:
        made = make_golden(piece, run[piece.id])
        assert isinstance(made, Golden)
        blobs[f"golden/{piece.id}"] = made.encode()
    return pieces, run, blobs


def checked(artifact: Any, which: str, **changes: Run) -> Boot:
    pieces, run, blobs = artifact
    boot = Boot(which, blobs)
    check_goldens(boot, pieces.program, run | changes)  # type: ignore[arg-type]
    return boot


def by_calls(pieces: Pieces) -> list[str]:
    return sorted(pieces.calls, key=lambda name: -pieces.calls[name])


def test_off_one_and_all(artifact: Any) -> None:
    most, other = by_calls(artifact[0])
    assert checked(artifact, "off").was_read == []
    assert checked(artifact, "one").was_read == [most], "the piece that is called most often"
    assert sorted(checked(artifact, "all").was_read) == sorted([most, other])


@pytest.mark.parametrize("which", ["one", "all"])
def test_a_piece_that_computes_something_else_here_is_refused(artifact: Any, which: str) -> None:
    most = by_calls(artifact[0])[0]

    def wrong(arguments: Sequence[Tensor]) -> None:
        artifact[1][most](arguments)
        arguments[-1].mul_(1.01)

    with pytest.raises(IntegrityError, match="computes something else on this machine") as caught:
        checked(artifact, which, **{most: wrong})
    assert most[:12] in caught.value.what
    assert "vcc compile" in caught.value.hint


def test_a_piece_that_writes_nothing_is_refused(artifact: Any) -> None:
    most = by_calls(artifact[0])[0]
    with pytest.raises(IntegrityError, match="not finite"):
        checked(artifact, "one", **{most: lambda arguments: None})


def test_off_means_off(artifact: Any) -> None:
    most = by_calls(artifact[0])[0]
    checked(artifact, "off", **{most: lambda arguments: None})


def test_pieces_without_a_golden_are_told(artifact: Any) -> None:
    pieces, run, blobs = artifact
    most = by_calls(pieces)[0]
    boot = Boot("all", {f"golden/{most}": blobs[f"golden/{most}"]})
    check_goldens(boot, pieces.program, run)  # type: ignore[arg-type]
    assert boot.notes == ["golden: 1 of 2 pieces not checked"]
    none = Boot("one", {})
    check_goldens(none, pieces.program, run)  # type: ignore[arg-type]
    assert none.notes == ["golden: 2 of 2 pieces not checked"]


def test_a_large_golden_is_left_to_all(artifact: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "BUDGET", 0)
    boot = checked(artifact, "one")
    assert boot.notes == ["golden: 2 of 2 pieces not checked"]


def test_a_golden_that_cannot_be_read_is_damage(artifact: Any) -> None:
    pieces, run, blobs = artifact
    boot = Boot("all", dict.fromkeys(blobs, b"nothing"))
    with pytest.raises(IntegrityError, match="golden refused"):
        check_goldens(boot, pieces.program, run)  # type: ignore[arg-type]
