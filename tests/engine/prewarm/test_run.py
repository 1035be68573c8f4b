"""Prewarming: one broken build stops no other, shards are stable, a budget starts nothing late."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace

import pytest
from support.prewarmed import publish

from vcc.cache.errors import CompileError, Exit, RemoteError, UsageError
from vcc.cache.store import Store
from vcc.cli.request import ModelOptions, build_request
from vcc.engine.prewarm.apart import compile_apart, exit_code
from vcc.engine.prewarm.asked import Asked, Shard, ask
from vcc.engine.prewarm.matrix import Cell
from vcc.engine.prewarm.problems import BrokenFile
from vcc.engine.prewarm.run import Prewarm, State, Step, stored


def cell(name: str = "", line: int = 1, **fields: object) -> Cell:
    return Cell(name or str(fields), "demo", {"compile": "none", **fields}, line, 1)


def request(one: Cell):
    return build_request(ModelOptions(one.model, **one.fields))


def asked(*cells: Cell) -> tuple[Asked, ...]:
    return ask("vcc.toml", cells, request)


def several(count: int) -> tuple[Asked, ...]:
    return asked(*(cell(max_num_seqs=number + 1) for number in range(count)))


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "store", on_damage=lambda damage: None)


@dataclass
class Clock:
    """Seconds that pass when told."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_there_is_not_built_and_the_rest_is(store):
    first, second = several(2)
    have = publish(store, first)
    built = []

    def build(one: Asked) -> str:
        built.append(one)
        return publish(store, one)

    outcomes = Prewarm(store, build).run((first, second))
    assert [one.state for one in outcomes] == [State.PRESENT, State.BUILT]
    assert outcomes[0].artifact == have
    assert built == [second]
    assert [one.state for one in Prewarm(store).run((first, second))] == [State.PRESENT] * 2


def test_a_check_builds_nothing_and_estimates_from_history(store):
    first, second = several(2)
    publish(store, first, build_ms=41_000)
    (missing,) = Prewarm(store).run((second,))
    assert missing.state is State.MISSING
    assert missing.estimate.seconds == 41
    assert missing.why


def test_an_artifact_of_another_toolchain_is_missing(store):
    (one,) = several(1)
    publish(store, one, code_key=(("torch", "1.0"),))
    entry, why = stored(one.settled, store)
    assert entry is None
    assert "another toolchain" in why


def test_one_that_fails_stops_no_other(store):
    ones = several(3)

    def build(one: Asked) -> str:
        if one is ones[1]:
            raise CompileError("it does not compile", "because")
        return publish(store, one)

    outcomes = Prewarm(store, build).run(ones)
    assert [one.state for one in outcomes] == [State.BUILT, State.FAILED, State.BUILT]
    assert outcomes[1].error is not None


def test_one_that_cannot_be_resolved_stops_no_other(store):
    ones = asked(cell(max_num_seqs=1), Cell("gone", "/no/such/model", {}, 2, 1))
    outcomes = Prewarm(store, lambda one: publish(store, one)).run(ones)
    assert [one.state for one in outcomes] == [State.BUILT, State.FAILED]


def test_what_follows_a_build_ends_at_its_first_failure(store):
    (one,) = several(1)
    done: list[str] = []

    def fail(entry) -> str:
        raise RemoteError("the remote is away")

    steps = (
        Step("sign", lambda entry: done.append(entry.artifact) or "signed"),
        Step("push", fail),
        Step("never", lambda entry: done.append("never") or ""),
    )
    (outcome,) = Prewarm(store, lambda one: publish(store, one), steps).run((one,))
    assert outcome.state is State.BUILT
    assert outcome.notes == ("signed",)
    assert isinstance(outcome.error, RemoteError)
    assert done == [outcome.artifact]


def test_a_budget_starts_no_build_that_would_end_later(store):
    ones, clock = several(4), Clock()
    publish(store, ones[0], build_ms=30_000)

    def build(one: Asked) -> str:
        clock.now += 30
        return publish(store, one, build_ms=30_000)

    outcomes = Prewarm(store, build, budget=70.0, clock=clock).run(ones)
    assert [one.state.value for one in outcomes] == ["present", "built", "built", "left"]
    assert "about 30 s, 10 s of the budget are left" in outcomes[3].why


def test_without_history_a_budget_is_a_bound_on_the_start_alone(store):
    ones, clock = several(3), Clock()

    def build(one: Asked) -> str:
        clock.now += 50
        return publish(store, one)

    outcomes = Prewarm(store, build, budget=60.0, clock=clock).run(ones)
    assert [one.state.value for one in outcomes] == ["built", "built", "left"]
    assert outcomes[2].why == "the budget is used up"


def test_every_build_is_in_one_shard_and_stays_there():
    ones = several(40)
    shards = [Shard(number, 3) for number in (1, 2, 3)]
    parts = [[one for one in ones if shard.has(one)] for shard in shards]
    assert sorted(one.cell.name for part in parts for one in part) == sorted(
        one.cell.name for one in ones
    )
    assert all(len(part) > 4 for part in parts)
    fewer = several(39)
    assert [[one.key for one in fewer if shard.has(one)] for shard in shards] == [
        [one.key for one in part if one.cell.name != ones[39].cell.name] for part in parts
    ]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "1/2/3", "01/2", "-1/2"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="no part of a whole"):
        Shard.parse(text)


def test_two_builds_with_one_key_are_both_named():
    twins = (cell("first", 3), cell("second", 9, dtype="bf16"))  # the demo is bf16
    with pytest.raises(BrokenFile) as caught:
        asked(*twins)
    (problem,) = caught.value.problems
    assert problem.line == 9
    assert '"second" has the same key as "first" of line 3' in problem.text


def test_a_build_of_a_mode_that_stores_nothing_is_refused(store):
    (one,) = asked(cell(compile="stock"))
    assert one.error is not None
    assert one.error.exit is Exit.USAGE


def test_exit_codes_of_several_builds():
    errors = [CompileError("a"), RemoteError("b")]
    assert exit_code([], 3) == Exit.OK
    assert exit_code(errors, 1) == Exit.PARTIAL
    assert exit_code(errors, 0) == Exit.COMPILE


@pytest.fixture
def child(monkeypatch):
    """A stand-in for `vcc compile`: a few lines of Python."""
    from vcc.engine.prewarm import apart

    real = apart.subprocess.Popen

    def stand_in(code: str) -> None:
        monkeypatch.setattr(
            apart.subprocess, "Popen", lambda words, **more: real([words[0], "-c", code], **more)
        )

    return stand_in


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (
            'print(\'{"error": {"what": "w", "why": "y"}}\'); raise SystemExit(8)',
            *(CompileError, "w: y"),
        ),
        ("raise SystemExit(4)", RemoteError, "exit code 4"),
        ("import os; os.kill(os.getpid(), 9)", CompileError, "SIGKILL"),
        ("print('[1]')", CompileError, "nothing of its artifact"),
    ],
)
def test_how_a_build_of_its_own_process_ended_is_an_error_of_its_kind(child, code, kind, said):
    child(code)
    with pytest.raises(kind, match=said):
        compile_apart(["demo"])


def test_a_build_of_its_own_process_tells_its_artifact(child):
    child('print(\'{"artifact": "ab"}\')')
    assert compile_apart(["demo"]) == "ab"


def test_an_artifact_that_went_away_is_an_error(store):
    (one,) = several(1)
    (outcome,) = Prewarm(store, lambda one: "0" * 64, (Step("sign", lambda e: ""),)).run((one,))
    assert outcome.error is not None
    assert "gone" in str(outcome.error)


def test_entries_are_found_in_lower_tiers_too(store, tmp_path):
    (one,) = several(1)
    have = publish(store, one)
    upper = replace(Store.open(tmp_path / "upper"), lower=(store.root,))
    (outcome,) = Prewarm(upper).run((one,))
    assert (outcome.state, outcome.artifact) == (State.PRESENT, have)


def test_an_interrupted_prewarm_ends_its_build(child):
    child("import time; time.sleep(60)")

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_apart(["demo"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < 10
