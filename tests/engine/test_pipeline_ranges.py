"""Ranges and exact sizes from request to run: rows P9 and P10, on a small module."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.builds import MODEL
from support.flow import ask, kept_environment
from torch import Tensor

from vcc.cache.errors import ConfigError, UsageError
from vcc.cache.store import Store
from vcc.engine.compile import pool
from vcc.engine.events import NullEvents
from vcc.engine.monitor import Counters
from vcc.engine.pipeline import build
from vcc.engine.request import Built, settle
from vcc.engine.session import Session, open_module_session
from vcc.engine.torch_shim import preload
from vcc.engine.types import CompiledPiece

RANGES = {"compile_ranges": [8, 32], "compile_sizes": [16, 64]}

GATED = """
from vcc.engine.passes.base import Gate, Outcome, define

def count(graph, context):
    return Outcome(1)

SMALL = define("small_only", count, gate=Gate(max_tokens=8))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "small.py").write_text(MODEL)
    (tmp_path / "gated.py").write_text(GATED)
    monkeypatch.chdir(tmp_path)
    for name in ("small", "gated"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with kept_environment():
        yield tmp_path


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler whose code is never run."""

    def compiled(pieces: Any, *_: Any) -> tuple[CompiledPiece, ...]:
        return tuple(CompiledPiece(p.id, b"\x7fELF" + p.id.encode(), None, None, 0) for p in pieces)

    monkeypatch.setattr(pool, "compile_pieces", compiled)
    monkeypatch.setattr(preload, "preload_inductor", lambda level: None)


def request_of(config: Mapping[str, Any], inputs: str = "x=1-64x48") -> Any:
    return ask("small:make", config=json.dumps(config), inputs=(inputs,))


def run(folder: Path, config: Mapping[str, Any], **options: Any) -> tuple[Built, Counters]:
    counters = Counters()
    store = Store.open(folder / "store", on_damage=lambda _: None)
    return build(request_of(config, **options), store, NullEvents(), counters), counters


@pytest.mark.usefixtures("stand_in")
def test_p9_each_range_and_each_exact_size_is_compiled(folder: Path) -> None:
    """P9: end points [8, 32], exact sizes [16, 64]: 5 compiles of the part, a program for each."""
    built, counters = run(folder, RANGES)
    assert (counters["traces"], counters["unique_pieces"], counters["compiles"]) == (1, 5, 5)
    programs = sorted(name for name in built.loaded.manifest.blobs if name.startswith("program"))
    assert programs == [f"program/{one}" for one in ("1-8", "16-16", "33-64", "64-64", "9-32")]
    said = [one["sizes"] for one in built.loaded.manifest.info["ranges"]]
    assert said == ["1-8", "9-32", "33-64", "16-16", "64-64"]


@pytest.mark.usefixtures("stand_in")
def test_p10_a_warm_build_of_ranges_runs_no_pass(folder: Path) -> None:
    """P10: the code is there: zero pass invocations."""
    _, cold = run(folder, RANGES)
    assert cold["passes"] > 0
    _, warm = run(folder, RANGES)
    assert (warm["passes"], warm["traces"], warm["compiles"], warm["hits"]) == (0, 0, 0, 1)


@pytest.mark.usefixtures("stand_in")
def test_passes_run_where_their_gates_are_open(folder: Path) -> None:
    config = {"compile_ranges": [8], "user_passes": ["gated:SMALL"]}
    info = run(folder, config)[0].loaded.manifest.info
    found = {one["sizes"]: one["passes"]["small_only"] for one in info["ranges"]}
    assert found["1-8"] == 1
    assert "above its limit of 8" in found["9-64"]
    (report,) = [one for one in info["passes"] if one["name"] == "small_only"]
    assert (report["matches"], report["skipped"]) == (1, "")


@pytest.mark.usefixtures("stand_in")
def test_a_size_that_no_input_has_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="compile_sizes has 65, outside of 1 to 64"):
        run(folder, {"compile_sizes": [65]})
    with pytest.raises(ConfigError, match="needs one size that varies"):
        run(folder, {"compile_ranges": [2]}, inputs="x=4x48")


def booted(folder: Path, config: Mapping[str, Any], counters: Counters) -> Callable[..., Any]:
    """The module's forward as a fresh look-up boots it, all goldens checked."""
    session = Session(
        settle(request_of(config)),
        Store.open(folder / "store"),
        golden="all",
        require_warm=True,
        counters=counters,
    )
    return open_module_session(session).booted.forward


@pytest.mark.parametrize("cuts", [[], ["aten::gelu"]], ids=["whole", "cut"])
def test_every_size_answers_as_eager_in_the_program_of_its_range(
    folder: Path, cuts: list[str]
) -> None:
    """The eager back end makes equal code for every range, so it is made and stored once."""
    config = {"backend": "eager", "splitting_ops": cuts, **RANGES}
    _, cold = run(folder, config)
    assert cold["compiles"] == 1 + len(cuts)
    counters = Counters()
    forward = booted(folder, config, counters)
    assert (counters["passes"], counters["compiles"], counters["traces"]) == (0, 0, 0)
    import small

    model = small.make()
    for size in (1, 8, 9, 16, 17, 32, 33, 63, 64):
        x = torch.randn(size, 48)
        wanted: tuple[Tensor, ...] = model(x)
        found = list(forward({"x": x}).values())
        torch.testing.assert_close([one.clone() for one in found], [w.detach() for w in wanted])
    for size in (65, 100):
        with pytest.raises(UsageError, match="the artifact serves 1 to 64"):
            forward({"x": torch.randn(size, 48)})


@pytest.mark.parametrize("which", ["one", "all"])
def test_goldens_of_every_range_are_checked(
    folder: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler whose code depends on the range leaves a piece for each, which are all checked."""
    from vcc.engine.compile.eager import EagerCompiler
    from vcc.engine.runtime import golden

    monkeypatch.setattr(EagerCompiler, "by_range", True)
    seen: list[str] = []
    monkeypatch.setattr(golden, "check_golden", lambda name, *_: seen.append(name))
    config = {"backend": "eager", **RANGES}
    _, cold = run(folder, config)
    assert cold["compiles"] == 5
    session = Session(settle(request_of(config)), Store.open(folder / "store"), which)
    open_module_session(session)
    assert len(set(seen)) == (5 if which == "all" else 1)
