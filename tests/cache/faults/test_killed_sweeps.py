"""A sweep that is killed anywhere, beside a publisher of what it takes: what has a ref is whole."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.stepped import Stepped
from support.stores import BASE, BLOBS, assert_intact, manifest_of, quiet, ref_path

from vcc.cache import taken
from vcc.cache.care import remove as removing
from vcc.cache.care import sweep as sweeping
from vcc.cache.care.check import check
from vcc.cache.care.prune import items_of
from vcc.cache.care.remove import remove
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.roots import release

FEW = {name: BLOBS[name] for name in ("program", "piece/0.so")}
SAMPLE, SLOW_SAMPLE = 60, 6000
SOON = (1, 2, 5)
"""Steps from the publisher's work to the kill: most of what can go wrong does so soon after."""


def garbage_of_the_same(folder: Path) -> None:
    """The blobs and the manifest that are published later, and nothing that names them."""
    ref_path(folder, quiet(folder).publish(manifest_of(), FEW)).unlink()


def another_with_the_same(folder: Path) -> None:
    quiet(folder).publish(manifest_of("none", created=1), FEW)


def publish(folder: Path) -> None:
    quiet(folder).publish(manifest_of(), FEW)


def collect_all(folder: Path) -> None:
    collect(folder, grace_s=0)


def remove_other(folder: Path) -> None:
    remove(folder, [one for one in items_of(folder).items if one.created == 1])


SWEEPS = {"gc": (garbage_of_the_same, collect_all), "rm": (another_with_the_same, remove_other)}
NEXT: dict[str, Callable[[Path], object]] = {
    "read": lambda folder: None,
    "gc": collect_all,
    "verify": lambda folder: check(folder).findings == [] or pytest.fail("verify names damage"),
    "repair": lambda folder: repair(folder).aside == [] or pytest.fail("repair sets aside"),
    "publish": lambda folder: quiet(folder).publish(manifest_of("next"), FEW),
}


@dataclass(frozen=True)
class Case:
    """Steps of the publisher before the sweep begins, then steps of each in turn; then a kill."""

    before: int
    sweep: int
    publisher: int
    killed_after: int
    after: str


def outcome(case: Case, sweep: Callable[[Path], object], folder: Path) -> bool:
    """Play a case, assert that what has a ref is whole; whether the sweep was killed in it."""
    publisher, sweeper = Stepped(lambda: publish(folder)), Stepped(lambda: sweep(folder))
    publisher.steps(case.before)
    sweeper.steps(case.sweep)
    publisher.steps(case.publisher)
    killed = sweeper.steps(case.killed_after)
    sweeper.kill()
    publisher.finish()
    NEXT[case.after](folder)
    (entry,) = quiet(folder).find(BASE, {"mode": "full"})
    assert_intact(folder, entry, FEW)
    release()
    collect_all(folder)
    assert check(folder).findings == []
    assert list((folder / "v1/tmp").iterdir()) == []
    return killed


def length(template: Path, work: Callable[[Path], object], place: Path) -> int:
    """Steps of a piece of work by itself."""
    shutil.copytree(template, place)
    alone = Stepped(lambda: work(place))
    count = next(number for number in itertools.count(1) if not alone.step())
    alone.finish()
    shutil.rmtree(place)
    return count


def played(cases: Iterator[Case], template: Path, sweep, place: Path) -> int:
    """Play cases on copies of a store; how many sweeps were killed."""
    killed = 0
    for case in cases:
        shutil.copytree(template, place)
        try:
            killed += outcome(case, sweep, place)
        except BaseException as error:
            raise AssertionError(f"{case}: {error!r}") from error
        shutil.rmtree(place)
    return killed


def whole_publishers(steps: int, kills: Iterable[int] = SOON) -> Iterator[Case]:
    """The publisher does all of its work at one point of the sweep, which is killed at another."""
    after = itertools.cycle(NEXT)
    for at in range(steps):
        for more in kills:
            yield Case(0, at, 10_000, more, next(after))


def interleaved(steps: int, published: int, count: int) -> Iterator[Case]:
    """Random points of both."""
    dice = random.Random(count)
    for _ in range(count):
        before, at = dice.randrange(published), dice.randrange(steps)
        more, killed = dice.randrange(published), dice.randrange(steps // 2)
        yield Case(before, at, more, killed, dice.choice(list(NEXT)))


@pytest.fixture(params=SWEEPS)
def scene(request, fast_tmp):
    prepare, sweep = SWEEPS[request.param]
    prepare(fast_tmp / "template")
    release()
    steps = length(fast_tmp / "template", sweep, fast_tmp / "place")
    published = length(fast_tmp / "template", publish, fast_tmp / "place")
    return fast_tmp / "template", sweep, fast_tmp / "place", steps, published


def test_killed_anywhere_after_a_publisher_reused_what_it_takes_nothing_is_lost(scene):
    template, sweep, place, steps, _ = scene
    assert played(whole_publishers(steps), template, sweep, place) > steps


@pytest.mark.slow
def test_killed_at_every_later_point_nothing_is_lost(scene):
    template, sweep, place, steps, _ = scene
    cases = whole_publishers(steps, range(1, steps + 2))
    assert played(cases, template, sweep, place) > steps * steps / 4


def test_killed_anywhere_between_the_steps_of_a_publisher_nothing_is_lost(scene):
    template, sweep, place, steps, published = scene
    assert played(interleaved(steps, published, SAMPLE), template, sweep, place) > SAMPLE / 3


@pytest.mark.slow
def test_killed_at_thousands_of_interleavings_nothing_is_lost(scene):
    template, sweep, place, steps, published = scene
    cases = interleaved(steps, published, SLOW_SAMPLE)
    assert played(cases, template, sweep, place) > SLOW_SAMPLE / 3


def test_the_matrix_finds_a_store_in_which_nobody_gives_back(scene, monkeypatch):
    """What was taken and then left behind was lost, before it had a name to be found by."""
    template, sweep, place, steps, _ = scene
    monkeypatch.setattr(taken, "give_back", lambda store, at: False)
    monkeypatch.setattr(removing, "give_back", lambda store, at: False)
    monkeypatch.setattr(sweeping, "give_all_back", only_named(sweeping.give_all_back))
    monkeypatch.setattr(sweeping, "is_taken", lambda name: False)
    with pytest.raises(AssertionError, match=r"is not in the store|names damage|sets aside"):
        played(whole_publishers(steps), template, sweep, place)


def only_named(real):
    """A sweep puts back what it finds named itself, and nobody else does."""
    return lambda store, own, first=(), names=(): real(store, own, first, names)
