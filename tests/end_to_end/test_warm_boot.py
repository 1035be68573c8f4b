"""A warm boot: what it imports, what it counts, what moves, and where the time went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.flow import Forcer, ask, booted

from vcc.cache.store import Store
from vcc.engine.config.modes import GraphMode
from vcc.engine.runtime.descriptors import BatchDescriptor
from vcc.engine.runtime.step import ModelRunner

RUN = ("run", "demo", "--prompt", "It is a truth", "--max-new-tokens", "5", "--json")
ANY_SIZE = BatchDescriptor(1)  # one code serves every size of the demo, so any does
COMPILERS = ("torch._dynamo", "torch._inductor", "sympy", "triton", "transformers")

MODULES = """
import json, sys
from vcc.cli.main import run
code = run(sys.argv[1:])
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""
FIND_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # an import of it is an error now
from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.request import settle
from vcc.engine.finding import find
from vcc.engine.session import Session
found = find(Session(settle(build_request(ModelOptions("demo"))), Store.open()))
print(found.entries[0].artifact)
"""


def modules_after(spawn: Callable[..., Any], store: Path, *words: str) -> tuple[int, set[str]]:
    """Exit code of a command in a fresh process, and what that process has imported."""
    done = spawn(*words, store=store, code=MODULES)
    code, names = json.loads(done.out.splitlines()[-1])
    return code, set(names)


def within(names: set[str], packages: tuple[str, ...]) -> list[str]:
    prefixes = tuple(f"{package}." for package in packages)
    return sorted(name for name in names if name in packages or name.startswith(prefixes))


def test_a_warm_run_imports_no_compiler(spawn: Callable[..., Any], demo_store: Path) -> None:
    code, names = modules_after(spawn, demo_store, *RUN, "--require-warm")
    assert code == 0
    assert "torch" in names
    assert within(names, COMPILERS) == []


@pytest.mark.parametrize(
    "words",
    [("--help",), ("run", "--help"), ("inspect", "cache"), ("inspect", "key", "demo")],
    ids=" ".join,
)
def test_what_needs_no_torch_imports_none(
    spawn: Callable[..., Any], demo_store: Path, words: tuple[str, ...]
) -> None:
    code, names = modules_after(spawn, demo_store, *words)
    assert code == 0
    assert within(names, ("torch", *COMPILERS)) == []


def test_an_artifact_is_found_where_torch_cannot_be_imported(
    spawn: Callable[..., Any], demo_store: Path
) -> None:
    done = spawn(store=demo_store, code=FIND_WITHOUT_TORCH)
    assert done.out.strip() in {entry.artifact for entry in Store.open(demo_store).entries()}


def test_a_miss_under_require_warm_says_why_without_torch(
    spawn: Callable[..., Any], tmp_path: Path
) -> None:
    words = ("run", "demo", "--prompt", "a", "--require-warm")
    done = spawn(*words, store=tmp_path / "none")
    assert done.code == 1
    assert "no artifact for demo" in done.err
    assert "store is empty" in done.err
    assert "vcc compile demo" in done.err
    assert not (tmp_path / "none").exists()
    code, names = modules_after(spawn, tmp_path / "none", *words)
    assert code == 1
    assert within(names, ("torch",)) == []


def test_a_warm_run_compiles_and_traces_nothing(
    spawn: Callable[..., Any], demo_store: Path
) -> None:
    report = spawn(*RUN, "--require-warm", store=demo_store).json
    wanted = {"compiles": 0, "traces": 0, "hits": 1, "misses": 0, "fallbacks": {}}
    assert {name: report["counters"][name] for name in wanted} == wanted
    assert report["counters"]["replays"] > 0
    assert report["prompts"][0]["text"]


def test_the_phases_account_for_the_time_until_the_answer(demo_store: Path) -> None:
    """Within 5 %, measured from outside; a busy moment may spoil one of three tries."""
    shares = []
    for _ in range(3):
        seconds, report = _timed(demo_store)
        named = sum(value for name, value in report["phases"].items() if name != "other")
        assert sum(report["phases"].values()) == pytest.approx(report["seconds"], rel=1e-3)
        shares.append(max(abs(named / seconds - 1), abs(report["seconds"] / seconds - 1)))
        if shares[-1] <= 0.05:
            return
    pytest.fail(f"phases and wall time differ by {shares}")


def _timed(store: Path) -> tuple[float, dict[str, Any]]:
    """Seconds from before the process to the first byte of its report, and the report."""
    own = {"VCC_CACHE_DIR": str(store), "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "vcc.cli.main", *RUN, "--require-warm"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | own,
    ) as child:
        assert child.stdout is not None
        first = child.stdout.read(1)
        seconds = time.perf_counter() - start
        return seconds, json.loads(first + child.stdout.read())


@pytest.fixture
def runner(demo_shelf: Path) -> ModelRunner:
    """The demo with graphs for all steps."""
    return booted(ask("demo"), Store.open(demo_shelf), lengths=[512, 512]).runner


def addresses(runner: ModelRunner) -> dict[object, list[int]]:
    """Where the step's values lie, and where every captured graph reads and writes."""
    (code,) = runner._parts.codes
    memory, program = code.memory, code.program
    ones = {symbol.name: 1 for symbol in program.symbols}
    found: dict[object, list[int]] = {
        value.name: [memory.view(value.name, ones).data_ptr()] for value in program.values
    }
    for mode in (GraphMode.FULL, GraphMode.PIECEWISE):
        for place, wrapper in enumerate(runner._wrappers(mode, ANY_SIZE)):
            for descriptor, graph in wrapper.graphs.items():
                found[mode, place, descriptor] = [
                    tensor.data_ptr() for call in graph.calls for tensor in _tensors(call.args)
                ]
    return found


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "data_ptr"):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def test_nothing_moves_in_a_thousand_steps(runner: ModelRunner) -> None:
    """Decode of two sequences, with a prefill whenever they have filled the context."""
    before, memory, logits = addresses(runner), [], set()
    assert sum(map(len, before.values())) > 1000
    forcer = Forcer(runner, every_row=False)
    for step in range(1000):
        if forcer.lengths.get(0, 512) >= 500:
            forcer = Forcer(runner, every_row=False)
            forcer.step({0: [5, 6, 7], 1: [9]})
        batch = forcer.batch({0: [step % 2048], 1: [7]})
        logits.add(runner.step(batch).data_ptr())
        memory.append(_resident())
    assert addresses(runner) == before
    assert len(logits) == 1
    assert max(memory[500:]) - memory[100] < 4 << 20
    assert dict(runner.stat.summary().modes)["full"] == 1000


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_replay_calls_no_python_of_ours_between_pieces(runner: ModelRunner) -> None:
    """Only the loop of the replay itself; the dispatcher of splitting ops is torch's."""
    (wrapper,) = runner._wrappers(GraphMode.FULL, ANY_SIZE)
    graph = next(iter(wrapper.graphs.values()))
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        graph.replay()
    finally:
        sys.setprofile(None)
    ours = [name for name in called if "torch/_ops.py" not in name]
    assert [name.rpartition(":")[2] for name in ours] == ["replay"]
    assert len(called) - 1 == sum(
        call.kind == "op" for call in runner._parts.codes[0].program.calls
    )
